"""Released models of a home: all of them, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from accountant.home import Home
from accountant.ledger.archive import archived
from accountant.system.lazy_import import later
from models.store.bundle import ModelStore
from models.store.listing import lines, versions_in
from serving.cli.backends.abstract import Body, Models, Progress, RowsToPredict
from serving.cli.backends.user import require_access
from serving.wire.list_parts import Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.features import notes
    from models.features.features import RawColumns
    from models.parts.beside import Columns, Wanted
    from models.store import placing
    from models.store.loading import VerifiedModel
    from models.worth import statements
    from training.datasets import described
    from training.measuring.worth import covers
    from training.planning import other_noise
    from training.rows.tables import row_files
else:  # a list does without
    statements = later("models.worth.statements")
    placing, notes = later("models.store.placing"), later("models.features.notes")
    row_files, described = later("training.rows.tables.row_files"), later("training.datasets.described")
    covers, other_noise = later("training.measuring.worth.covers"), later("training.planning.other_noise")

# Labels (n,), probabilities (n, classes), and notes, and the columns beside, where they are wanted.
Answer: TypeAlias = "tuple[NDArray[Any], NDArray[Any], list[str] | None, Columns | None]"


class HomeModels(Models):
    """As `Models` says, with the files of the home."""

    def list_part(self, part: Part) -> Body:
        """Return versions, held against the ledger; the files of no others are read."""
        home = Home.open()
        hidden = archived(home.ledger, "model")
        versions, following = part.cut(
            versions_in(home), lambda each: f"{each[0]}@{each[1]}", None, lambda each: each[0] in hidden
        )
        listed = [
            {**line, **{key: worth and worth[key] for key in ("better", "outcome")}, "worth": [worth] if worth else []}
            for line, worth in statements.judgements(home, lines(home, versions))
        ]
        return {"models": listed, "next": following}

    def champion(self, name: str) -> int | None:
        """Return the version that answers to a name."""
        return ModelStore(Home.open().models).champion(name)

    def predict(self, file: RowsToPredict, progress: Progress) -> Body:
        """Predict a file with a verified model."""
        home = Home.open()
        model = placing.open_in(home, file.model)
        verified, dataset = model.verified, model.verified.certificate.form.dataset
        require_access(home, "predict", model=model.reference.partition("@")[0], dataset=dataset.name)
        form = verified.format if file.schema is None else described.read_schema(file.schema).format
        batches = row_files.read_columns(file.data, verified.ensemble.features, form)
        ranges = described.ranges_of(home, dataset.name, dataset.schema_digest) if file.has_notes else None
        add = None if file.wanted is None else _beside(home, verified, file.wanted)

        def answer(columns: RawColumns) -> Answer:
            labels, probabilities = verified.runtime.predict(columns)
            found = None if ranges is None else notes.notes_of(verified.ensemble.features, ranges, columns)
            texts = None if found is None else [notes.note_text(each) for each in found]
            return labels, probabilities, texts, None if add is None else add(columns)

        answers = _count_answers(map(answer, batches), progress)
        kept = row_files.KeptColumns(file.data, file.keep, form) if file.keep else None
        names = () if file.wanted is None else file.wanted.names(verified.ensemble.classes)
        count = row_files.write_predictions(file.out, verified.ensemble.classes, answers, kept, file.has_notes, names)
        body = {"model": model.reference, "target": verified.ensemble.target, "records": count, "out": str(file.out)}
        word = verified.certificate.word
        return body | ({"vouched": word} if word else {})


def _beside(home: Home, verified: VerifiedModel, wanted: Wanted) -> Callable[[RawColumns], Columns]:
    """Return what makes the columns that stand beside predictions."""
    model, certificate = verified.ensemble, verified.certificate
    if wanted.covers:
        cover = covers.Cover.of(home, model, certificate, wanted.group)
        return lambda columns: cover.answer(columns, wanted)
    noise = other_noise.OtherNoise.of(home, model, certificate)
    return lambda columns: dict(zip(wanted.names(()), noise.interval(columns, wanted.level).T, strict=True))


def _count_answers(answers: Iterator[Answer], progress: Progress) -> Iterator[Answer]:
    """Yield the same answers, and report how many records went by."""
    done = 0
    for answer in answers:
        yield answer
        progress(done := done + len(answer[0]), None)
