"""`dpserve model edit`: change what a released model says, and certify the result. No row is read, nothing is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dpserve_verify.errors import InputError
from models.edit.changes import bins_of
from models.edit.curves import Curves, class_of, curves_of, to_curves
from models.edit.edit_list import read_edits
from serving.cli.backend import backend
from serving.cli.complete import Model
from serving.cli.terminal import Json, align_columns, show
from serving.cli.tree import from_fields
from serving.operations.edits import EditRequest, edit_model

FREE = "costs no privacy: the numbers were released already"
ROWS = 40  # changed bins that are printed; --json has all


@dataclass(frozen=True)
class Edit:
    """What `dpserve model edit` is asked for."""

    name: Model
    feature: Annotated[str | None, typer.Option(help="The feature to edit, or a pair: age & hours.")] = None
    class_: Annotated[
        str | None, typer.Option("--class", help="Of three classes or more: whose curve, each has its own.")
    ] = None
    show_bins: Annotated[bool, typer.Option("--show", help="Only print the feature's bins and what each adds.")] = False
    set_: Annotated[list[str] | None, typer.Option("--set", help="BINS=VALUE: what these bins add. Repeatable.")] = None
    smooth: Annotated[str | None, typer.Option(help="BINS: means over neighbouring bins.")] = None
    window: Annotated[int, typer.Option(help="Bins in a mean of --smooth, odd.")] = 3
    weights: Annotated[str, typer.Option(help="In a mean of --smooth: equal, or counts (as released).")] = "equal"
    clip: Annotated[tuple[float, float] | None, typer.Option(metavar="LOW HIGH", help="No bin adds less or more.")] = (
        None
    )
    zero: Annotated[str | None, typer.Option(help="BINS that add nothing; all: the whole feature.")] = None
    monotone: Annotated[str | None, typer.Option(help="increasing or decreasing: the nearest such shape.")] = None
    file: Annotated[Path | None, typer.Option(help="Several edits, YAML or JSON, in place of the options above.")] = (
        None
    )
    why: Annotated[str | None, typer.Option(help="Why: it stays in the model and its certificate permanently.")] = None
    by: Annotated[str | None, typer.Option(help="Who edits; your user name when left out.")] = None
    promote: Annotated[bool, typer.Option("--promote/--no-promote", help="Make the new version champion at once.")] = (
        False
    )
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False
    json: Json = False

    def steps(self) -> list[dict[str, Any]]:
        """Return the edits of the options, in their order. Raises InputError where one is wrong, or no feature is
        named.
        """
        steps: list[dict[str, Any]] = [{"set": _set(text)} for text in self.set_ or ()]
        if self.smooth is not None:
            steps.append({"smooth": {"bins": self.smooth, "window": self.window, "weights": self.weights}})
        if self.clip is not None:
            steps.append({"clip": {"low": self.clip[0], "high": self.clip[1]}})
        if self.zero is not None:
            steps.append({"zero": {"bins": self.zero}})
        if self.monotone is not None:
            steps.append({"monotone": {"direction": self.monotone}})
        if steps and self.feature is None:
            raise InputError("feature: must be named")
        about = {"feature": self.feature} | ({} if self.class_ is None else {"class": self.class_})
        return [{**about, **step} for step in steps]


@from_fields(Edit)
def edit(asked: Edit) -> None:
    """Edit a released model: a new version, certified as derived from the old one, for no privacy at all.

    BINS: 30..40, ..18, 65.. (numbers), "Bachelors, Masters" (values), missing, other, "bin 3-7", or all. Of a pair:
    bins of the one & bins of the other, "30..40 & ..20".
    Values are log odds of the second class (of three classes or more, of the one that --class names), or units of a
    numeric target. What is asked for at once is done in the
    order of the options above.

    \b
    dpserve model edit adult --feature age --show
    dpserve model edit adult --feature age --monotone increasing --why "risk does not fall with age"
    dpserve model edit adult --feature hours --set "..10=-0.5" --set "missing=0" --why "too few records"
    dpserve model edit adult --file edits.yaml --dry-run
    """
    opened = backend().bundles.open(asked.name)
    base, released = opened.reference, opened.verified
    if asked.show_bins:
        return _show_bins(base, to_curves(released.ensemble), asked)
    steps = asked.steps()
    if asked.file is not None and (steps or asked.feature or asked.class_):
        raise InputError("file: stands in place of --feature, --class and their edits")
    if asked.why is None and not asked.dry_run:
        raise InputError("why: must be said, it stays in the model permanently")
    edits = steps if asked.file is None else read_edits(asked.file)
    entry = released.certificate.issued
    body = backend(asked.by).ask(
        edit_model, name=base, body=EditRequest(edits, asked.why, entry, asked.promote, asked.dry_run)
    )
    if asked.dry_run:
        ending = "dry run: nothing was written"
    else:
        state = "champion now" if asked.promote else f"a candidate; dpserve model promote {body['model']}"
        ending = f"{base} -> {body['model']} ({state})"
    show(asked.json, body, "\n".join((*_text(body), FREE, ending)))


def _set(text: str) -> dict[str, Any]:
    bins, _, value = text.rpartition("=")
    try:
        if bins.strip():
            return {"bins": bins, "to": float(value)}
    except ValueError:
        pass
    raise InputError(f"set={text:.80}: must be BINS=VALUE, for instance 30..40=0.5")


def _text(body: dict[str, Any]) -> Iterator[str]:
    changed = body["changed"]
    several = bool(changed) and "class" in changed[0]
    names = ("class", "feature", "values") if several else ("feature", "values")
    rows = [
        (*(str(row[name]) for name in names), f"{row['before']:+.4f}", f"{row['after']:+.4f}") for row in changed[:ROWS]
    ]
    yield align_columns([(*(["CLASS"] if several else ()), "FEATURE", "BINS", "BEFORE", "AFTER"), *rows])
    if len(changed) > ROWS:
        yield f"and {len(changed) - ROWS} more bins"


def _show_bins(reference: str, model: Curves, asked: Edit) -> None:
    if asked.feature is None:
        raise InputError("feature: must be named")
    label = class_of(model, asked.class_)
    body = bins_of(curves_of(model, label), asked.feature)
    rows = [
        (row["bin"], row["values"], f"{row['adds']:+.4f}", _optional(row["error"], ".4f"), _optional(row["count"], "d"))
        for row in body
    ]
    text = align_columns([("BIN", "VALUES", "ADDS", "NOISE", "COUNT"), *rows])
    of = {} if label is None else {"class": label}
    show(asked.json, {"model": reference, "feature": asked.feature, **of, "bins": body}, text)


def _optional(number: Any, form: str) -> str:
    return "" if number is None else f"{number:{form}}"
