"""`dpserve model explain`: a model's votes or shapes, one record's account, or two models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from models.explain.compare import Comparison, comparison_picture
from models.explain.compare import compare as compare_models
from models.explain.explain import logits, spoken_for, unit
from models.explain.picture import picture
from models.features.features import RawColumns
from models.forms.ensemble import Ensemble, Summary
from serving.cli.backend import backend
from serving.cli.complete import Model
from serving.cli.terminal import Json, align_columns, show

if TYPE_CHECKING:
    from models.store.loading import VerifiedModel
    from training.rows.tables import row_files
else:
    row_files = later("training.rows.tables.row_files")  # loads what reads rows

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
    opened = backend().bundles.open(name)
    verified = opened.verified
    record = None if data is None or row is None else _record(data, row, verified)
    if out is not None:
        picture(verified.ensemble, verified.certificate.line, out, record)
    body = {"model": opened.reference, "picture": str(out) if out else None}
    parts, rows = verified.ensemble.summary() if record is None else _explain_record(verified.ensemble, record)
    show(json, {**body, **parts}, align_columns(rows))


def _record(data: Path, row: int, verified: VerifiedModel) -> RawColumns:
    """Read one row of a file, written as those of the model's dataset, as columns of length 1."""
    start = 0
    for columns in row_files.read_columns(data, verified.ensemble.features, verified.format):
        count = len(next(iter(columns.values())))  # type: ignore[arg-type]
        if row < start + count:
            return {name: values[row - start : row - start + 1] for name, values in columns.items()}  # type: ignore[index]
        start += count
    raise InputError(f"row={row}: {data.name} has {start}; the first is 0")


def _explain_record(ensemble: Ensemble, record: RawColumns) -> Summary:
    """Return what each value of one record adds, as JSON and as a table."""
    terms = logits(ensemble, record)
    scores = [str(label) for label in spoken_for(ensemble)]
    adds = {name: votes.tolist() for name, votes in zip(terms.features, terms.votes[0], strict=True)}
    answer = ensemble.predict(record).tolist()[0]
    body = {"unit": unit(ensemble), "prediction": answer, "base": terms.base.tolist(), "scores": scores}
    body["contributions"] = [{"feature": name, "adds": effect} for name, effect in adds.items()]
    ordered = sorted(adds.items(), key=lambda item: -max(map(abs, item[1])))
    lines = [("at first", *terms.base.tolist()), *((name, *effect) for name, effect in ordered)]
    rows = [(*(f"{number:+.4g}" for number in line[1:]), line[0]) for line in lines]
    return body, [(*(f"FOR {label}" for label in scores), unit(ensemble)), *rows, (*[""] * len(scores), f"-> {answer}")]


def _compare(name: str, other: str, out: Path | None, json: bool) -> None:
    bundles = backend().bundles
    opened = [bundles.open(name), bundles.open(other)]
    names = opened[0].reference, opened[1].reference
    comparison = compare_models(opened[0].verified.ensemble, opened[1].verified.ensemble, names)
    if out is not None:
        claims = (opened[0].verified.certificate.line, opened[1].verified.certificate.line)
        comparison_picture(comparison, out, claims)
    differences = [_difference(difference) for difference in comparison.differences]
    body = {"models": list(names), "unit": comparison.unit, "summary": comparison.summary(), "differences": differences}
    only = {model: list(features) for model, features in zip(names, comparison.only, strict=True)}
    body["pairs"] = list(comparison.pairs)
    show(json, {**body, "only": only, "picture": str(out) if out else None}, _comparison_text(comparison, differences))


def _difference(difference: Any) -> dict[str, Any]:
    return {
        "feature": difference.feature,
        "value": difference.first.label,
        "adds": [difference.first.votes, difference.second.votes],
        "difference": difference.more,
        "error": difference.error,
        "standard_errors": difference.deviates,
    }


def _comparison_text(comparison: Comparison, differences: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(f"{effect:+.4g}" for effect in line["adds"]),
            f"{line['difference']:+.4g}",
            "" if line["standard_errors"] is None else f"{line['standard_errors']:+.1f}",
            f"{line['feature']}: {line['value']}",
        )
        for line in differences[:LISTED]
    ]
    table = align_columns([(*comparison.names, "DIFFERENCE", "IN STANDARD ERRORS", "WHERE"), *rows])
    return f"{comparison.summary()}\n{table}"
