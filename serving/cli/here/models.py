"""Released models of a home: all of them, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from accountant.home import Home
from models.worth.statements import judged, worths
from serving.cli.here.released import opened
from serving.cli.terminal import allowed
from serving.process.registry import Registry
from training.rows.row_files import read_columns, write_predictions
from training.rows.sources.described import written_as

Answer = tuple[NDArray[Any], NDArray[Any]]  # labels (n,) and probabilities (n, classes)


def listed() -> list[dict[str, Any]]:
    """Every version, each verified, with the statement of worth that it is judged by."""
    registry, home = Registry(), Home.open()
    registry.refresh(home)
    versions = registry.to_json()
    for line in versions:
        found = judged(worths(home, line["certificate"]["entry"])) if line["certificate"] else None
        line["worth"] = [] if found is None else [found]
    return versions


def predicted(
    name: str, data: Path, schema: Path | None, out: Path, progress: Callable[[int, int | None], None]
) -> dict[str, Any]:
    """Every row of a file, written as `schema` says, predicted in its order into another; what was done."""
    model = opened(name)
    verified, short = model.verified, model.reference.partition("@")[0]
    allowed(Home.open(), "predict", model=short, dataset=verified.certificate.form.dataset.name)
    about = verified.certificate.form.dataset
    described = written_as(Home.open(), about.name, about.schema_digest, schema)
    batches = read_columns(data, verified.ensemble.features, described)
    answers = (verified.runtime.predict(columns) for columns in batches)
    count = write_predictions(out, verified.ensemble.classes, _counted(answers, progress))
    return {"model": model.reference, "target": verified.ensemble.target, "records": count, "out": str(out)}


def _counted(answers: Iterator[Answer], progress: Callable[[int, int | None], None]) -> Iterator[Answer]:
    """The same answers; `progress` is told how many records went by."""
    done = 0
    for labels, probabilities in answers:
        yield labels, probabilities
        progress(done := done + len(labels), None)
