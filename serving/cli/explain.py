"""`dpserve model explain`: a model's votes or shapes, one record's account, or two models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.errors import InputError
from serving.cli.models import Model, certificate_line, open_model, reference
from serving.cli.terminal import Json, aligned, show

if TYPE_CHECKING:
    from models.explain.compare import Comparison
    from models.features import Columns
    from models.forms.ensemble import Ensemble, Summary

LISTED = 20  # differences printed


def explain(
    name: Model,
    out: Annotated[Path | None, typer.Option(help="A picture as well: FILE.png, FILE.svg or FILE.html.")] = None,
    data: Annotated[Path | None, typer.Option(help="Records, .parquet or .csv, one of which is explained.")] = None,
    row: Annotated[int | None, typer.Option(min=0, help="Which record of --data; the first is 0.")] = None,
    compare: Annotated[str | None, typer.Option(help="Another model, to see beside this one.")] = None,
    json: Json = False,
) -> None:
    """Explain a model: its votes or what each feature adds, or what its trees ask; one record; or two models.

    \b
    dpserve model explain adult --out adult.html
    dpserve model explain adult --data people.csv --row 3
    dpserve model explain adult@1 --compare adult@2 --out both.html
    """
    if (data is None) != (row is None):
        raise InputError("data, row: go together")
    if data is not None and compare is not None:
        raise InputError("data, compare: choose one")
    if compare is not None:
        return _compare(name, compare, out, json)
    folder, found = open_model(name)
    record = None if data is None or row is None else _record(data, row, found.ensemble)
    if out is not None:
        from models.explain.picture import picture

        picture(found.ensemble, certificate_line(found.certificate), out, record)
    body = {"model": reference(folder), "picture": str(out) if out else None}
    parts, rows = found.ensemble.summary() if record is None else _account(found.ensemble, record)
    show(json, {**body, **parts}, aligned(rows))


def _record(data: Path, row: int, ensemble: Ensemble) -> Columns:
    """One row of a file as columns of length 1."""
    from training.rows.row_files import read_columns

    start = 0
    for columns in read_columns(data, ensemble.features):
        count = len(next(iter(columns.values())))  # type: ignore[arg-type]
        if row < start + count:
            return {name: values[row - start : row - start + 1] for name, values in columns.items()}  # type: ignore[index]
        start += count
    raise InputError(f"row={row}: {data.name} has {start}; the first is 0")


def _account(ensemble: Ensemble, record: Columns) -> Summary:
    """What each value of one record adds, as JSON and as a table."""
    from models.explain.explain import logits, spoken_for, unit

    found = logits(ensemble, record)
    scores = [str(label) for label in spoken_for(ensemble)]
    adds = {name: votes.tolist() for name, votes in zip(found.features, found.votes[0], strict=True)}
    answer = ensemble.predict(record).tolist()[0]
    body = {"unit": unit(ensemble), "prediction": answer, "base": found.base.tolist(), "scores": scores}
    body["contributions"] = [{"feature": name, "adds": each} for name, each in adds.items()]
    ordered = sorted(adds.items(), key=lambda item: -max(map(abs, item[1])))
    lines = [("at first", *found.base.tolist()), *((name, *each) for name, each in ordered)]
    rows = [(*(f"{number:+.4g}" for number in line[1:]), line[0]) for line in lines]
    return body, [(*(f"FOR {label}" for label in scores), unit(ensemble)), *rows, (*[""] * len(scores), f"-> {answer}")]


def _compare(name: str, other: str, out: Path | None, json: bool) -> None:
    from models.explain.compare import compare, comparison_picture

    opened = [open_model(name), open_model(other)]
    names = reference(opened[0][0]), reference(opened[1][0])
    found = compare(opened[0][1].ensemble, opened[1][1].ensemble, names)
    if out is not None:
        claims = (certificate_line(opened[0][1].certificate), certificate_line(opened[1][1].certificate))
        comparison_picture(found, out, claims)
    differences = [_difference(each) for each in found.differences]
    body = {"models": list(names), "unit": found.unit, "summary": found.summary(), "differences": differences}
    only = {model: list(features) for model, features in zip(names, found.only, strict=True)}
    show(json, {**body, "only": only, "picture": str(out) if out else None}, _compared(found, differences))


def _difference(each: Any) -> dict[str, Any]:
    return {
        "feature": each.feature,
        "value": each.first.label,
        "adds": [each.first.votes, each.second.votes],
        "difference": each.more,
        "error": each.error,
        "standard_errors": each.deviates,
    }


def _compared(found: Comparison, differences: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(f"{each:+.4g}" for each in line["adds"]),
            f"{line['difference']:+.4g}",
            "" if line["standard_errors"] is None else f"{line['standard_errors']:+.1f}",
            f"{line['feature']}: {line['value']}",
        )
        for line in differences[:LISTED]
    ]
    table = aligned([(*found.names, "DIFFERENCE", "IN STANDARD ERRORS", "WHERE"), *rows])
    return f"{found.summary()}\n{table}"
