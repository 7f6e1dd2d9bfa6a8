"""`dpserve model edit`: change what a released model says, and certify the result. No row is read, nothing is spent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.errors import InputError
from accountant.home import Home
from serving.cli.models import Model, open_model
from serving.cli.terminal import Json, aligned, show, this_user

if TYPE_CHECKING:
    from models.forms.additive import AdditiveEnsemble

FREE = "costs no privacy: the numbers were released already"
ROWS = 40  # changed bins that are printed; --json has all


Feature = Annotated[str | None, typer.Option(help="The feature to edit.")]
Show = Annotated[bool, typer.Option("--show", help="Only print the feature's bins and what each adds.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="BINS=VALUE: what these bins add. Repeatable.")]
Smooth = Annotated[str | None, typer.Option(help="BINS: means over neighbouring bins.")]
Window = Annotated[int, typer.Option(help="Bins in a mean of --smooth, odd.")]
Weights = Annotated[str, typer.Option(help="In a mean of --smooth: equal, or counts (as released).")]
Clip = Annotated[tuple[float, float] | None, typer.Option(metavar="LOW HIGH", help="No bin adds less or more.")]
Zero = Annotated[str | None, typer.Option(help="BINS that add nothing; all: the whole feature.")]
Monotone = Annotated[str | None, typer.Option(help="increasing or decreasing: the nearest such shape.")]
File = Annotated[Path | None, typer.Option(help="Several edits, YAML or JSON, in place of the options above.")]
Why = Annotated[str | None, typer.Option(help="Why: it stands in the model and its certificate for ever.")]
By = Annotated[str | None, typer.Option(help="Who edits; your user name when left out.")]
Promote = Annotated[bool, typer.Option("--promote/--no-promote", help="Make the new version champion.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]


def edit(
    name: Model,
    feature: Feature = None,
    show_bins: Show = False,
    set_: Set = None,
    smooth: Smooth = None,
    window: Window = 3,
    weights: Weights = "equal",
    clip: Clip = None,
    zero: Zero = None,
    monotone: Monotone = None,
    file: File = None,
    why: Why = None,
    by: By = None,
    promote: Promote = True,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Edit a released model: a new version, certified as derived from the old one, for no privacy at all.

    BINS: 30..40, ..18, 65.. (numbers), "Bachelors, Masters" (values), missing, other, "bin 3-7", or all.
    Values are log odds of the second class, or units of a numeric target. What is asked for at once is done in the
    order of the options above.

    \b
    dpserve model edit adult --feature age --show
    dpserve model edit adult --feature age --monotone increasing --why "risk does not fall with age"
    dpserve model edit adult --feature hours --set "..10=-0.5" --set "missing=0" --why "too few records"
    dpserve model edit adult --file edits.yaml --why "review of 3 May" --dry-run
    """
    from models.edit.editing import Note, to_additive

    folder, found = open_model(name)
    before = to_additive(found.ensemble)
    reference = f"{folder.parent.name}@{folder.name}"
    if show_bins:
        return _show_bins(reference, before, feature, json)
    from models.edit.edit_list import edit_all, read_edits

    asked = _asked(feature, set_, smooth, window, weights, clip, zero, monotone)
    if file is not None and (asked or feature):
        raise InputError("file: stands in place of --feature and its edits")
    if why is None:
        raise InputError("why: must be said, it stands in the model for ever")
    edits = asked if file is None else read_edits(file)
    after = edit_all(before, edits, Note(by or this_user(), why))
    body: dict[str, Any] = {"base": reference, "edits": [each.to_json() for each in after.edits[len(before.edits) :]]}
    body |= {"changed": list(_changes(before, after)), "epsilon_spent": "0"}
    if dry_run:
        return show(json, {**body, "model": None}, "\n".join((*_text(body), FREE, "dry run: nothing was written")))
    from training.derive import derive

    place = derive(Home.open(), found, after, promote)
    body["model"] = f"{place.parent.name}@{place.name}"
    body["champion"] = promote
    state = "champion now" if promote else "not promoted"
    show(json, body, "\n".join((*_text(body), FREE, f"{reference} -> {body['model']} ({state})")))


def _asked(
    feature: str | None,
    sets: list[str] | None,
    smooth: str | None,
    window: int,
    weights: str,
    clip: tuple[float, float] | None,
    zero: str | None,
    monotone: str | None,
) -> list[dict[str, Any]]:
    """The options as a list of edits."""
    asked: list[dict[str, Any]] = [{"set": _set(each)} for each in sets or ()]
    if smooth is not None:
        asked.append({"smooth": {"bins": smooth, "window": window, "weights": weights}})
    if clip is not None:
        asked.append({"clip": {"low": clip[0], "high": clip[1]}})
    if zero is not None:
        asked.append({"zero": {"bins": zero}})
    if monotone is not None:
        asked.append({"monotone": {"direction": monotone}})
    if asked and feature is None:
        raise InputError("feature: must be named")
    return [{"feature": feature, **each} for each in asked]


def _set(text: str) -> dict[str, Any]:
    bins, equals, value = text.rpartition("=")
    try:
        return {"bins": bins, "to": float(value)} if equals and bins.strip() else _refused(text)
    except ValueError:
        return _refused(text)


def _refused(text: str) -> dict[str, Any]:
    raise InputError(f"set={text:.80}: must be BINS=VALUE, for instance 30..40=0.5")


def _changes(before: AdditiveEnsemble, after: AdditiveEnsemble) -> Iterator[dict[str, Any]]:
    from models.edit.edit_parts import bin_text

    for feature, old, new in zip(before.features, before.terms, after.terms, strict=True):
        for code, (was, now) in enumerate(zip(old, new, strict=True)):
            if was != now:
                values = {"before": was * before.link, "after": now * after.link}
                yield {"feature": feature.name, "bin": code, "values": bin_text(feature, code), **values}


def _text(body: dict[str, Any]) -> Iterator[str]:
    changed = body["changed"]
    rows = [(row["feature"], row["values"], f"{row['before']:+.4f}", f"{row['after']:+.4f}") for row in changed[:ROWS]]
    yield aligned([("FEATURE", "BINS", "BEFORE", "AFTER"), *rows])
    if len(changed) > ROWS:
        yield f"and {len(changed) - ROWS} more bins"


def _show_bins(reference: str, model: AdditiveEnsemble, feature: str | None, json: bool) -> None:
    from models.edit.edit_parts import bin_text
    from models.edit.editing import errors_of, values_of

    if feature is None:
        raise InputError("feature: must be named")
    values, errors = values_of(model, feature), errors_of(model, feature)
    place = [each.name for each in model.features].index(feature)
    counts = model.counts[place] if model.counts else (None,) * len(values)
    body = [
        {"bin": code, "values": bin_text(model.features[place], code), "adds": float(value), "error": error, "count": n}
        for code, (value, error, n) in enumerate(zip(values, errors, counts, strict=True))
    ]
    rows = [
        (row["bin"], row["values"], f"{row['adds']:+.4f}", _optional(row["error"], ".4f"), _optional(row["count"], "d"))
        for row in body
    ]
    text = aligned([("BIN", "VALUES", "ADDS", "NOISE", "COUNT"), *rows])
    show(json, {"model": reference, "feature": feature, "bins": body}, text)


def _optional(number: Any, form: str) -> str:
    return "" if number is None else f"{number:{form}}"
