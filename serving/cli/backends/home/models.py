"""Released models of a home: all of them, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from accountant.home import Home
from accountant.ledger.evaluations import by_model
from accountant.system.lazy_import import later
from models.store.listing import lines
from serving.cli.terminal import allowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.worth import statements
    from serving.cli.backends.home import released
    from training.datasets import described
    from training.rows.tables import row_files
else:
    # a list does without
    statements, released = later("models.worth.statements"), later("serving.cli.backends.home.released")
    row_files, described = later("training.rows.tables.row_files"), later("training.datasets.described")

Answer: TypeAlias = "tuple[NDArray[Any], NDArray[Any]]"  # labels (n,) and probabilities (n, classes)


def listed() -> list[dict[str, Any]]:
    """Every version, held against the ledger, with the statement of worth that it is judged by."""
    home = Home.open()
    versions = list(lines(home))
    measured = by_model(home.ledger.log.database)
    for line in versions:
        entry = line["certificate"] and line["certificate"]["entry"]
        found = statements.judged(statements.worths(home, entry)) if entry in measured else None
        line["worth"] = [] if found is None else [found]
    return versions


def predicted(
    name: str, data: Path, schema: Path | None, out: Path, progress: Callable[[int, int | None], None]
) -> dict[str, Any]:
    """Every row of a file, written as `schema` says, predicted in its order into another; what was done."""
    model = released.opened(name)
    verified, short = model.verified, model.reference.partition("@")[0]
    allowed(Home.open(), "predict", model=short, dataset=verified.certificate.form.dataset.name)
    about = verified.certificate.form.dataset
    form = described.written_as(Home.open(), about.name, about.schema_digest, schema)
    batches = row_files.read_columns(data, verified.ensemble.features, form)
    answers = (verified.runtime.predict(columns) for columns in batches)
    count = row_files.write_predictions(out, verified.ensemble.classes, _counted(answers, progress))
    return {"model": model.reference, "target": verified.ensemble.target, "records": count, "out": str(out)}


def _counted(answers: Iterator[Answer], progress: Callable[[int, int | None], None]) -> Iterator[Answer]:
    """The same answers; `progress` is told how many records went by."""
    done = 0
    for labels, probabilities in answers:
        yield labels, probabilities
        progress(done := done + len(labels), None)
