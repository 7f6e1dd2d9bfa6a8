"""Registering a dataset: read once, check, pack, commit, and only then enter it in the ledger. For the steward alone.

Packed rows lie in the home's `datasets/<commitment>/`: `bins.npy` (features and groups, rows), `labels.npy` (rows,),
int32 targets where a number is to be predicted, `labels-2.npy` and so on of further targets, and `schema.yaml`; what is
kept aside lies in `holdout-bins.npy`, `holdout-labels.npy` and so on, which no learner is given. The commitment is an
HMAC over all of it, its key held by the accountant: it names the rows in the ledger and says nothing about them. Beside
them `sketch.npz`, by which the same people are known again in another file (`training.rows.overlap`).
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.budget import Budget, Relation, check_name
from accountant.errors import DataError, InputError, JobFailed, LedgerUnavailable, NameTaken, SchemaError, WrongState
from accountant.files import PRIVATE, locked, replace_unsynced, replacing, sync_directory, sync_file
from accountant.home import Home
from accountant.ledger.families import Dataset, Started
from accountant.ledger.records import HOLDOUT, RECORD, NewPeople, Registration, Unit
from training.rows.data import (
    answer_dtype,
    bin_dtype,
    check_left_out,
    encode_answers,
    encode_column,
    has_answer,
    most_rows,
    read_batches,
)
from training.rows.file_check import explaining
from training.rows.known_rows import sketches
from training.rows.overlap import SKETCH, Scan, Sketch, same_people
from training.rows.parts import Parting
from training.rows.people import FirstOfEach, unit_ids
from training.rows.row_files import column_types
from training.rows.rows import ROW_LIMIT, Rows
from training.rows.schema import Schema, parse_schema
from training.rows.unit_question import answered, ask, columns_to_watch, naming_people, repeat_like_ids

CHUNK = 1 << 24
LOCK = "datasets.lock"  # held while a packed folder is put in its place and entered
# By folder: its files as they lay when they were hashed, and whether they were those that were registered.
_SEEN: dict[Path, tuple[tuple[tuple[int, ...], ...], bool]] = {}


@dataclass(frozen=True)
class Packed:
    """Rows as integers: `bins` (features, then groups, rows), and for each target its `answers` (rows,): uint8
    classes, or int32 of a number. `held`: which rows are kept aside for evaluation; None where none are.
    """

    bins: NDArray[Any]
    answers: tuple[NDArray[Any], ...]
    held: NDArray[np.bool_] | None = None

    @property
    def labels(self) -> NDArray[Any]:
        """The answers of the first target."""
        return self.answers[0]

    def parts(self) -> dict[str | None, tuple[NDArray[Any], tuple[NDArray[Any], ...]]]:
        """Bins and answers of each part, rows in their order: of what is learnt from, and of what is kept aside."""
        if self.held is None:
            return {None: (self.bins, self.answers)}
        of = {None: ~self.held, HOLDOUT: self.held}
        return {part: (self.bins[:, own], tuple(each[own] for each in self.answers)) for part, own in of.items()}


def register(
    home: Home,
    name: str,
    data: Path,
    schema_file: Path,
    budget: Budget | None,
    relation: Relation,
    unit: str | None,
    contributions: int = 1,
    families: Sequence[str] = (),
    new_people: NewPeople | None = None,
    family_name: str | None = None,
    holdout: Decimal | None = None,
) -> Dataset:
    """Register `data` under `name`, with a total budget or in the `families` of other datasets, if it fits the schema.

    `unit`: the column that names the person, or "record"; None is asked about (`training.rows.unit_question`). Rows or
    people registered, outside of `families`, raise NameTaken, but for `new_people`. `family_name`, `holdout`: of a new
    one, what it is called and the share of its units that is kept aside for evaluation.
    """
    check_left_out(schema := parse_schema(raw := schema_bytes(schema_file)), relation)
    _check_free(home, check_name("dataset", name))
    types, registered = column_types(data, schema.form), home.ledger.datasets()
    shared = {family.identity for other in families for family in home.ledger.dataset(other).families}
    relatives = [each for each in registered if not shared.isdisjoint(_identities(each))]
    answer = answered(unit, contributions, types, relatives)
    how, (by_name, by_values) = answer or RECORD, columns_to_watch(schema, types)
    if answer is None and by_name:
        raise ask(by_name, "by name")
    about = Registration(
        name, relation, budget, how, schema.records, schema.digest, "", tuple(families), new_people, family_name,
        schema.target_names if len(schema.targets) > 1 else (), holdout,
    )  # fmt: skip
    parting = _parting(home, about, relatives)
    for total in [budget] if budget else [home.ledger.dataset(family).budget for family in families]:
        total.check_delta(schema.records)
    naming = [*dict.fromkeys(filter(None, [how.column, *by_name, *by_values]))]
    home.datasets.mkdir(mode=0o700, exist_ok=True)  # a host that joined others has their keys alone
    dataset = None
    while dataset is None:  # once more where another registration came in between: it is compared with that one too
        others = [] if new_people else [each for each in home.ledger.datasets() if shared.isdisjoint(_identities(each))]
        scan = _scan(home, schema, types, naming, others)
        with explaining(schema, data):
            packed, sketch = pack(data, schema, how, scan, parting), scan.sketch()
        people = naming_people(sketch, how.column, [name for name in by_name if name not in scan.fractions])
        whole = [name for name in by_values if name not in scan.fractions]
        if answer is None and (like := [name for name in whole if repeat_like_ids(sketch.people[name], sketch.rows)]):
            raise ask(like, "their values repeat as ids do")
        if relation is Relation.REPLACE_ONE and packed.labels.size != schema.records:
            said = "under replace-one the number of rows is public and must be exact; it is another"
            raise DataError(f"records={schema.records}: {said}")
        folder = home.datasets / f"{uuid.uuid4()}.partial"
        try:
            _write(folder, packed, schema, raw, people)
            commitment = home.keys.commitment(_content(folder, len(schema.targets), parting is not None))
            dataset = _enter(home, folder, replace(about, commitment=commitment), others, scan, people)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    _note(home, name, {"data": str(data.absolute()), "schema": str(schema_file.absolute()), "rows": commitment})
    return dataset


def _parting(home: Home, about: Registration, relatives: Sequence[Dataset]) -> Parting | None:
    """By the key of the family, which holds for each of its datasets."""
    share, name = about.holdout, about.family_name or about.name
    if relatives:
        share, name = relatives[0].holdout, relatives[0].families[0].name
    if share is None:
        return None
    return Parting(bytes.fromhex(home.keys.commitment([b"the key of the parts of family ", name.encode()])), share)


def pack(
    data: Path, schema: Schema, unit: Unit = RECORD, scan: Scan | None = None, parting: Parting | None = None
) -> Packed:
    """All rows of the file in packed bins; of each unit, the first rows in file order, as many as it may contribute.
    `scan` sees every row as it stands in the file. `parting` says which units are kept aside.
    """
    keep = FirstOfEach(unit.column, unit.contributions) if unit.column else None
    described = {feature.name for feature in schema.stored} | {*schema.target_names}
    seen = set() if scan is None else set(scan.names)
    questions = [schema.question(name) for name in schema.target_names]
    bins, answers = np.empty((0, 0)), [np.empty(0) for _ in questions]
    held: list[NDArray[np.bool_]] = []
    start = used = 0
    for batch in read_batches(data, schema, sorted(({unit.column or ""} | seen) - {""} - described)):
        if not start:  # room for every row, of which the system gives what is written to: nothing is moved or copied
            most = most_rows(data, schema.form)
            bins = np.empty((len(schema.stored), most), bin_dtype(schema.stored))
            answers = [np.empty(most, answer_dtype(asked)) for asked in questions]
        if scan is not None:
            scan(batch, start)
        chosen: Any = slice(None) if keep is None else keep(batch, start)
        end = used + (len(batch) if keep is None else int(np.count_nonzero(chosen)))
        if end > ROW_LIMIT:
            raise DataError(f"data={data.name}: more than {ROW_LIMIT} rows, the most that can be learnt from at once")
        for codes, feature in zip(bins, schema.stored, strict=True):
            codes[used:end] = encode_column(feature, batch[feature.name], start)[chosen]
        for own, asked in zip(answers, questions, strict=True):
            own[used:end] = encode_answers(asked, batch[asked.target], start)[chosen]
        if parting is not None and unit.column:
            held.append(parting.of_units(unit_ids(unit.column, batch[unit.column]))[chosen])
        start, used = start + len(batch), end
    if keep is not None:
        keep.check()
    if not start:
        raise DataError(f"data={data.name}: the file has no rows")
    for own, asked in zip(answers, questions, strict=True):
        if not has_answer(own[:used]).any():
            raise DataError(f"{asked.target}: no row that is used has an answer")
    bins, answers = bins[:, :used], [own[:used] for own in answers]
    if parting is not None and not unit.column:
        held = [parting.of_records([*bins, *answers])]
    return Packed(bins, tuple(answers), np.concatenate(held) if held else None)


def schema_of(home: Home, dataset: Dataset) -> Schema:
    """The public schema as registered. Reads no rows. LedgerUnavailable where the home has lost the file."""
    path = home.datasets / dataset.registration.commitment / "schema.yaml"
    if not path.exists():
        name = dataset.registration.name
        raise LedgerUnavailable(f"dataset={name}: its files are not in the home; restore datasets/ from a backup")
    schema = parse_schema(path.read_bytes())
    if schema.digest != dataset.registration.schema:
        raise SchemaError(f"dataset={dataset.registration.name}: its schema file is not the registered one")
    return schema


def require_rows(home: Home, dataset: Dataset) -> None:
    """LedgerUnavailable where the packed rows cannot be read here, or are not those that were registered, or are more
    than ROW_LIMIT (registered before there was one): no job on them may start in this home, and each would fail there
    after its charge. Which of these it is, is not said. A file is hashed once, and again where it was touched.
    """
    folder, targets = home.datasets / dataset.registration.commitment, max(1, len(dataset.registration.targets))
    parted = dataset.holdout is not None
    try:
        files = [(folder / name).stat() for name in _files(targets, parted)]
        state = tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in files)
        if _SEEN.get(folder, ((), False))[0] != state:
            few = np.load(folder / "labels.npy", mmap_mode="r", allow_pickle=False).size <= ROW_LIMIT
            _SEEN[folder] = state, few and home.keys.commitment(_content(folder, targets, parted)) == folder.name
        sound = _SEEN[folder][1]
    except (OSError, ValueError):
        sound = False
    if not sound:
        raise LedgerUnavailable(
            f"dataset={dataset.registration.name}: its rows are not in this home as they were registered, or cannot be "
            "read, or are more than can be learnt from at once; restore datasets/ from a backup, or run the job where "
            "they are"
        )


def open_rows(home: Home, started: Started, schema: Schema) -> Rows:
    """Map the packed rows of a job that has STARTED, after checking that they are the rows that were registered.

    `schema`: the whole one. The job's part and target alone are read, of the rows that have an answer to it: which of
    them that are is decided row by row, so that adding a row adds at most that row to the job's.
    """
    folder = checked(home, started, schema)
    asked = schema.question(started.request.target)
    files, at = row_files(len(schema.targets), started.request.part), 1 + schema.target_names.index(asked.target)
    bins, labels = (np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in (files[0], files[at]))
    if asked.only.leave_out:
        bins, labels = bins[:, has_answer(labels)], labels[has_answer(labels)]
    columns = [at for at, feature in enumerate(schema.features) if feature in asked.features]
    by = started.request.parameters.get("group")
    group = None if by is None else bins[schema.stored.index(schema.group(str(by)), len(schema.features))]
    bins = bins[: len(columns)] if len(columns) == len(schema.features) else bins[columns]
    return Rows(bins, labels, [feature.bins for feature in asked.features], len(asked.classes or ()), group)


def checked(home: Home, started: Started, schema: Schema) -> Path:
    """The folder of a started job's rows. JobFailed where they are not those that were registered."""
    folder, parted = home.datasets / started.dataset.registration.commitment, started.dataset.holdout is not None
    if home.keys.commitment(_content(folder, len(schema.targets), parted)) != folder.name:
        raise JobFailed("rows: the packed file is not the one that was registered")
    return folder


def row_files(targets: int, part: str | None = None) -> list[str]:
    """The file of the bins, and of each target that of its answers; what is kept aside lies in files of its own."""
    names = ["bins.npy", "labels.npy", *(f"labels-{number}.npy" for number in range(2, targets + 1))]
    return names if part is None else [f"{part}-{name}" for name in names]


def _files(targets: int, parted: bool) -> list[str]:
    """What the commitment is over, in its order."""
    return [*row_files(targets), *(row_files(targets, HOLDOUT) if parted else []), "schema.yaml"]


def schema_bytes(path: Path) -> bytes:
    """The bytes of a schema's file. SchemaError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SchemaError(f"schema={path}: cannot be read: {error.strerror}") from None


def _check_free(home: Home, name: str) -> None:
    if any(dataset.registration.name == name for dataset in home.ledger.datasets()):
        raise NameTaken(f"dataset={name}: is registered already; a budget is given once", dataset=name)


def _identities(dataset: Dataset) -> set[str]:
    return {family.identity for family in dataset.families}


def _enter(
    home: Home, folder: Path, about: Registration, others: Sequence[Dataset], scan: Scan, own: Sketch
) -> Dataset | None:
    """Put the packed `folder` in its place and enter it, where it is compared with each of `others`. None where the
    ledger has, outside of its families, yet another: registered since, here or on another host.

    A process of this home at a time; between hosts, the ledger's own transaction decides. The sketch is in its place
    before the entry is, so who finds the entry finds the sketch, or asks for it.
    """
    place = home.datasets / about.commitment
    with locked(home.path / LOCK):
        _check_new_rows(home, about.commitment, own)
        if about.new_people is None:
            _check_new_people(home, others, scan, own)
        made, parted = not place.exists(), (place / row_files(1, HOLDOUT)[0]).exists()
        if made or home.keys.commitment(_content(place, max(1, len(about.targets)), parted)) != about.commitment:
            shutil.rmtree(place, ignore_errors=True)
            folder.rename(place)
        else:  # left by a start that was cut before its entry, or just now another host's: the same rows
            _write_sketch(place, own)
        sync_directory(home.datasets)
        try:
            compared = None if about.new_people else {other.registration.name for other in others}
            return home.ledger.register(about, compared)
        except InputError as error:  # nothing was entered
            if made and about.commitment not in {each.registration.commitment for each in home.ledger.datasets()}:
                shutil.rmtree(place)
            if isinstance(error, WrongState):
                return None
            raise


def _check_new_rows(home: Home, commitment: str, sketch: Sketch) -> None:
    for dataset in home.ledger.datasets():
        if dataset.registration.commitment == commitment:
            known, place = dataset.registration.name, home.datasets / commitment
            if place.exists() and not (place / SKETCH).exists():
                _write_sketch(place, sketch)
            raise NameTaken(
                f"data: these rows are registered already, as {known}; the same people have one budget", dataset=known
            )


def _scan(home: Home, schema: Schema, types: Iterable[str], naming: Sequence[str], others: Iterable[Dataset]) -> Scan:
    """Of a file's columns that the schema knows, against those sketches of `others` that are in this home."""
    described = {feature.name for feature in schema.features}
    described |= {*schema.target_names, *schema.ignore}
    columns = [column for column in types if column in described]
    key, known = sketches(home, others)
    return Scan(key, schema.target_names, columns, naming, known)


def _check_new_people(home: Home, others: Iterable[Dataset], scan: Scan, own: Sketch) -> None:
    """A noticeable share of people or rows that are registered already is refused, to the steward alone; and where
    that cannot be looked at, it is asked.
    """
    for name, known in scan.known.items():
        pairs = [same_people(mine, theirs) for mine in own.people.values() for theirs in known.people.values()]
        for what, share in (("people", max(pairs, default=0.0)), ("rows", scan.same_rows(name, own))):
            if share:
                raise NameTaken(
                    f"data: {what} of this file, about {share:.0%}, are in the dataset {name} already; the same people "
                    f"have one budget. Share it by --family {name}; or, if these are other people, say why by "
                    "--new-people --reason, which stands in the ledger",
                    dataset=name, what=what, share=f"{share:.2f}",
                )  # fmt: skip
    for other in others:  # owners keep their rows, so there is nothing to look at, here or anywhere
        if (name := other.registration.name) not in scan.known and not other.registration.unit.remote:
            raise InputError(
                f"data: are people of this file in the dataset {name}? Nobody can say: what they are known by, "
                f"datasets/{other.registration.commitment}/{SKETCH}, is not in this home. Share its budget by --family "
                f"{name}; or, if these are other people, say why by --new-people --reason, which stands in the ledger; "
                f"or put that file back from a copy of the home where {name} was registered, or register the file of "
                f"{name} there once more, with the same schema: it is refused, and makes the sketch anew",
                dataset=name, answers=[f"--family {name}", "--new-people --reason TEXT"],
            )  # fmt: skip


def _write(folder: Path, packed: Packed, schema: Schema, raw: bytes, sketch: Sketch) -> None:
    folder.mkdir(mode=0o700)
    for part, (bins, answers) in packed.parts().items():
        for name, column in zip(row_files(len(schema.targets), part), (bins, *answers), strict=True):
            np.save(folder / name, column, allow_pickle=False)
    (folder / "schema.yaml").write_bytes(raw)
    for file in folder.iterdir():
        file.chmod(PRIVATE)
        sync_file(file)
    _write_sketch(folder, sketch)


def _write_sketch(folder: Path, sketch: Sketch) -> None:
    with replacing(folder / SKETCH) as partial:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            sketch.write(file)
        sync_file(partial)
    sync_directory(folder)


def _content(folder: Path, targets: int, parted: bool) -> Iterator[bytes]:
    for name in _files(targets, parted):
        yield name.encode()
        with (folder / name).open("rb") as file:
            yield from iter(lambda file=file: file.read(CHUNK), b"")  # type: ignore[misc]


def _note(home: Home, name: str, about: dict[str, str]) -> None:
    """`datasets.json`: where the steward's files came from. For people; nothing is decided by it."""
    path = home.path / "datasets.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    replace_unsynced(path, f"{json.dumps({**known, name: about}, indent=2)}\n".encode(), PRIVATE)
