"""Registering a dataset: read once, check, pack, commit, and only then enter it in the ledger. For the steward alone.

Packed rows lie in the home's `datasets/<commitment>/`: `bins.npy` (features, groups and weights, rows), `labels.npy`
(rows,), int32 targets where a number is to be predicted, `labels-2.npy` and so on of further targets,
`cells-of-octaves.npy`
(numbers, rows) uint16, fine cells, where a number is declared, `firsts.npy` (rows,) bool, where a person may have
several rows: whether it is their first, and `schema.yaml`; what is kept aside lies in `holdout-bins.npy`,
`holdout-labels.npy` and so on, which no learner is given. The commitment is an HMAC over all of it, its key held by the
accountant: it names the rows in the ledger and says nothing about them. Beside them `sketch.npz`, by which the same
people are known again in another file (`training.datasets.overlap`).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path

from accountant.errors import CameBetween, JobFailed, NameTaken, RowsUnavailable, SchemaError
from accountant.home import Home
from accountant.ledger.comparisons import REGISTER
from accountant.ledger.families.families import Dataset, Started
from accountant.ledger.families.records import HOLDOUT, RECORD, NewPeople, Registration, Request, Unit
from accountant.ledger.families.row_queries import RowQuery
from accountant.system.numpy_files import map_array
from dpserve_verify.errors import DpserveError, InputError, LedgerUnavailable
from dpserve_verify.privacy.budget import Budget, Relation, check_name
from dpserve_verify.system.files import PRIVATE, locked, replace_unsynced, replacing, sync_directory, sync_file
from training.datasets.copy_guard import LOCK, Asker, Guard, find_copies
from training.datasets.known_rows import sketches
from training.datasets.overlap import SKETCH, Scan, Sketch
from training.datasets.packing import check_packed, pack
from training.datasets.schema_copies import copy_schema
from training.datasets.unit_candidates import find_candidates
from training.datasets.unit_question import ask, columns_like_ids, columns_to_watch, naming_people, read_unit
from training.planning.first_plan import check_first_job
from training.rows.engine import check_engine, cluster, engine_address
from training.rows.packed.cells import declared_ranges
from training.rows.packed.content import Read, content_of
from training.rows.packed.names import cells_file, firsts_file, row_files, since_file
from training.rows.packed.persons import PEOPLE, Before
from training.rows.packed.working import working_folder
from training.rows.partitions.rows import Rows, most_rows_of, row_bound
from training.rows.partitions.threads import Threads, cuts
from training.rows.people.parts import Parting
from training.rows.schema.refined_schema import check_refined
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import check_left_out, require_used
from training.rows.tables.file_check import FileCheck, explaining
from training.rows.tables.partition_source import Source

LOG = logging.getLogger("dpserve.datasets")
ONE_ROW = "first-of-each"  # what a job's parameter `rows` says where it reads one row of each person
# By folder: its files as they lay when they were hashed, whether they were those that were registered, and its rows.
_SEEN: dict[Path, tuple[tuple[tuple[int, ...], ...], bool, int]] = {}


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
    origin: str | None = None,
    person: Budget | None = None,
    query: RowQuery | None = None,
    asker: Asker = Asker(),  # noqa: B008 frozen
    said_ids: tuple[str, ...] = (),
) -> Dataset:
    """Register `data` under `name`, with a total budget or in the `families` of other datasets, if it fits the schema.

    `unit`: the column that names the person, or "record"; None is asked about (`training.datasets.unit_question`). Rows
    or people registered outside of `families` raise NameTaken, but for `new_people`. Of a new family, `family_name` and
    `holdout`; `person`: one person's total. `origin`, `query`: of `data`. `asker` brings it, and says `said_ids`.
    """
    check_left_out(schema := parse_schema(raw := schema_bytes(schema_file)), relation)
    _check_free(home, check_name("dataset", name))
    types = require_used(data, schema.form)
    shared = {family.identity for other in families for family in home.ledger.dataset(other).families}
    relatives = [each for each in home.ledger.datasets() if not shared.isdisjoint(_identities(each))]
    answer, (by_name, by_values) = read_unit(unit, contributions, types, relatives), columns_to_watch(schema, types)
    how = _unit_of(answer, by_name, by_values, data, schema)
    about = Registration(
        name, relation, budget, how, schema.records, schema.digest, "", tuple(families), new_people, family_name,
        schema.target_names if schema.targets[1:] else (), holdout, any(declared_ranges(schema.features, schema.ends)),
        person, query, schema.refined, said_ids, how.has_several, weight=schema.weight,
    )  # fmt: skip
    _check_without_rows(home, about, raw, schema)
    parting = parting_of(home, about, relatives)
    naming = [*dict.fromkeys(filter(None, [how.column, *by_name, *by_values]))]
    guard = Guard(home, REGISTER, name, asker)
    home.datasets.mkdir(mode=0o700, exist_ok=True)  # a host that joined others has their keys alone
    while True:  # once more where another registration came in between
        others = [] if new_people else [each for each in home.ledger.datasets() if shared.isdisjoint(_identities(each))]
        scan = scan_of(home, schema, types, naming, others)
        guard.require_answers_left()
        with working_folder(home.datasets) as folder:
            with explaining(schema, data, how.column):
                packed = pack(data, schema, how, scan, parting, folder, before_of(home, about), said_ids, about.firsts)
            people = _people_of(scan, answer, by_name, by_values, schema, data)
            guard.require_enough(people, how.column, others)
            check_packed(schema, data, packed, relation)
            asker = asker.shown(FileCheck([], packed.counts, schema.records))
            files = _files(about, len(schema.targets), parting is not None, person is not None)
            mac = write_packed(home, folder, files, raw, people)
            about = replace(about, commitment=mac)
            dataset = _enter(guard, folder, files, about, others, scan, people)
        if dataset is not None:
            note(home, name, data=origin or str(data.absolute()), schema=str(schema_file.absolute()), rows=mac)
            return dataset


def _unit_of(answer: Unit | None, by_name: Sequence[str], by_values: Sequence[str], data: Path, schema: Schema) -> Unit:
    if answer is None and by_name:
        raise ask(find_candidates(data, schema.form, by_name, by_values), by_name, "by name")
    return answer or RECORD


def _check_without_rows(home: Home, about: Registration, raw: bytes, schema: Schema) -> None:
    """Raise what would refuse the registration whatever its rows are, before any is compared."""
    shared = [home.ledger.dataset(name) for name in about.families]
    check_refined(home, raw, schema, {family.identity for dataset in shared for family in dataset.families})
    totals = [about.budget] if about.budget else [dataset.budget for dataset in shared]
    for total in totals:
        total.check_delta(about.records)
    share = shared[0].holdout if shared else about.holdout
    least = Budget(min(total.epsilon for total in totals), min(total.delta for total in totals))
    check_first_job(schema, least, about.relation, about.unit.contributions, share)
    home.ledger.check_registration(about)


def _people_of(
    scan: Scan, unit: Unit | None, by_name: Sequence[str], by_values: Sequence[str], schema: Schema, data: Path
) -> Sketch:
    """Return the sketch of a file that was read, with the ids of people alone. InputError asks who one person is, where
    `unit` does not say so and values repeat as ids do.
    """
    sketch = scan.sketch()
    whole = [name for name in by_values if name not in scan.fractions]
    if unit is None and (found := columns_like_ids(sketch, whole, schema)):
        raise ask(find_candidates(data, schema.form, (), found), found, "their values repeat as ids do")
    column = None if unit is None else unit.column
    return naming_people(sketch, column, [name for name in by_name if name not in scan.fractions])


def parting_of(home: Home, about: Registration, relatives: Sequence[Dataset]) -> Parting | None:
    """Return the parting by the key of the family, which holds for each of its datasets."""
    share, name = about.holdout, about.family_name or about.name
    if relatives:
        share, name = relatives[0].holdout, relatives[0].families[0].name
    if share is None:
        return None
    return Parting(bytes.fromhex(home.keys.commitment([b"the key of the parts of family ", name.encode()])), share)


def require_rows(home: Home, dataset: Dataset) -> None:
    """Raise RowsUnavailable where the packed rows cannot be read here, or are not those that were registered, or are
    more than their public bound: no job on them may start in this home, and each would fail there after its charge.
    Which of these it is, is not said. A file is hashed once, and again where it was touched.
    """
    rows, sound, places = 0, True, list[Path]()
    try:
        for folder in folders_of(home, dataset):
            names = files_of(dataset, _number_of(dataset, folder.name), folder=folder)
            places += (folder / name for name in names)
            files = [(folder / name).stat() for name in names]
            state = tuple(
                (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                for status in files
            )
            if _SEEN.get(folder, ((), False, 0))[0] != state:
                size = int(map_array(folder / "labels.npy").size)
                _SEEN[folder] = state, home.keys.commitment(content_of(folder, names)) == folder.name, size
            sound, rows = sound and _SEEN[folder][1], rows + _SEEN[folder][2]
        sound = sound and rows <= most_rows_of(dataset)
    except (OSError, ValueError):
        sound = False
    if dataset.registration.weight is not None and engine_address() is not None:
        raise InputError(
            f"dataset={dataset.registration.name}: has weights, and a cluster counts rows alike; run the job with "
            "DPSERVE_ENGINE=local"
        )
    if not sound:
        raise RowsUnavailable(
            f"dataset={dataset.registration.name}: its rows are not in this home as they were registered, or cannot be "
            "read, or are more than can be learnt from at once; restore datasets/ from a backup, or run the job where "
            "they are"
        )
    check_engine(places)


def open_rows(home: Home, started: Started, schema: Schema) -> Rows:
    """Map the packed rows of a job that has STARTED, after checking that they are the rows that were registered.

    `schema`: the whole one. The job's part and target alone are read, of the rows that have an answer to it: which of
    them that are is decided row by row, so that adding a row adds at most that row to the job's. They are asked by this
    process, or by the hosts of a cluster where DPSERVE_ENGINE names one.
    """
    request, about = started.request, started.dataset.registration
    question = schema.question(request.target, request.parameters)
    read = tuple(feature.name for feature in question.features)
    group = request.parameters.get("group")
    by = None if group is None else str(group)
    sources = [
        Source(folder, schema, request.target, request.part, by, about.cells, begins, read, takes_one_row(request))
        for folder, begins in zip(folders_of(home, started.dataset), begins_of(started.dataset), strict=True)
    ]
    address = engine_address()
    if address is None:
        check_folders(home, started)
        places = [(source, low, high) for source in sources for low, high in cuts(source.size, len(read))]
        parts = (source.partitions(low, high, source.folder) for source, low, high in places)
        return Rows.over(Threads([*chain.from_iterable(parts)]))
    bounds = [row_bound(block.records) for block in started.dataset.blocks] or [row_bound(about.records)]
    schema_file = home.datasets / about.commitment / "schema.yaml"
    return Rows.over(
        cluster().open_cluster(
            address, sources, schema_file, bounds, lambda source, read: _check(home, started, source.folder, read)
        )
    )


def takes_one_row(request: Request) -> bool:
    """Return whether a job reads the first row of each person alone."""
    return bool(request.parameters.get("rows") == ONE_ROW)


def folders_of(home: Home, dataset: Dataset) -> list[Path]:
    """Return where the packed rows lie, block by block."""
    return [home.datasets / commitment for commitment in dataset.commitments]


def begins_of(dataset: Dataset) -> list[int | None]:
    """Return, for each folder of `folders_of`, the first block of the window, by which one person's rows are bounded
    over all of it; None where nothing is to be left out, in the first block itself or where no total for one person
    stands.
    """
    if dataset.person is None or not dataset.blocks:
        return [None] * len(dataset.commitments)
    first = dataset.blocks[0].number
    return [None if block.number == first else first for block in dataset.blocks]


def before_of(home: Home, about: Registration, dataset: Dataset | None = None) -> Before | None:
    """Return who has rows in the blocks of `dataset` whose rows are there, for the next block, which bounds one person
    over all of them; without `dataset`, of a first block. None where nothing names people who may come again.
    """
    if about.unit.column is None or about.relation is Relation.REPLACE_ONE or (dataset is None and about.families):
        return None
    called = (about.family_name or about.name).encode()
    key = bytes.fromhex(home.keys.commitment([b"the key of the people of family ", called]))
    if dataset is None:
        return Before(key, about.unit.contributions, bounds=about.person is not None)
    last = dataset.last or 1
    folders = folders_of(home, home.ledger.dataset(about.name, blocks=(dataset.dropped + 1, last)))
    earlier = [*zip(range(dataset.dropped + 1, last + 1), folders, strict=True)] if dataset.dropped < last else []
    return Before(key, about.unit.contributions, last + 1, earlier[::-1])


def check_folders(home: Home, started: Started) -> list[Path]:
    """Return the folders of a started job's rows. JobFailed where they are not those that were registered."""
    folders = folders_of(home, started.dataset)
    for folder in folders:
        _check(home, started, folder)
    return folders


def _check(home: Home, started: Started, folder: Path, read: Read | None = None) -> None:
    names = files_of(started.dataset, _number_of(started.dataset, folder.name), folder=folder)
    if home.keys.commitment(content_of(folder, names, read)) != folder.name:
        raise JobFailed("rows: the packed file is not the one that was registered")


def files_of(dataset: Dataset, block: int = 1, bounds: bool | None = None, folder: Path | None = None) -> list[str]:
    """Return the files of a block of a registered dataset that its commitment is over, in its order. `bounds`: whether
    its rows are bounded by earlier blocks; None: as the dataset stands. A first block has that file where the total for
    one person was declared with it. `folder`: where they lie, maybe as an earlier version packed them; None: they are
    to be packed.
    """
    about = dataset.registration
    bounded = dataset.person is not None if bounds is None else bounds
    person = about.person is not None or (bounded and block > 1)
    return _files(about, max(1, len(about.targets)), dataset.holdout is not None, person, folder)


def _number_of(dataset: Dataset, commitment: str) -> int:
    """Return the number of the block of this commitment."""
    return next((block.number for block in dataset.blocks if block.commitment == commitment), 1)


def _files(about: Registration, targets: int, parted: bool, person: bool, folder: Path | None = None) -> list[str]:
    parts = (None, HOLDOUT) if parted else (None,)
    extra = [cells_file(part, folder) for part in parts] if about.cells else []
    extra += [firsts_file(part) for part in parts] if about.firsts else []
    extra += [since_file(part) for part in parts] if person else []
    return [*(name for part in parts for name in row_files(targets, part)), *extra, "schema.yaml"]


def schema_bytes(path: Path) -> bytes:
    """Return the bytes of a schema's file. SchemaError where it cannot be read."""
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
    guard: Guard,
    folder: Path,
    files: Sequence[str],
    about: Registration,
    others: Sequence[Dataset],
    scan: Scan,
    own: Sketch,
) -> Dataset | None:
    """Put the packed `folder` in its place and enter it, where it is compared with each of `others`. None where the
    ledger has, outside of its families, yet another: registered since, here or on another host.

    A process of this home at a time; between hosts, the ledger's own transaction decides. The sketch is in its place
    before the entry is, so who finds the entry finds the sketch, or asks for it.
    """
    home = guard.home
    with locked(home.path / LOCK):
        guard.require_answers_left()  # of several at one time each waits here for the others' answers
        _check_new_rows(guard, about.commitment, own)
        if about.new_people is None:
            check_new_people(guard, others, scan, own)
        compared = None if about.new_people else {relative.registration.name for relative in others}
        with guard.answering() if compared else nullcontext():
            is_new = put_in_place(home, folder, files, about.commitment, own)
            try:
                return home.ledger.register(about, compared)
            except InputError as error:  # nothing was entered
                if is_new:
                    remove_unless_entered(home, about.commitment)
                if isinstance(error, CameBetween):
                    return None
                raise
            except LedgerUnavailable as error:
                raise LedgerUnavailable(f"{error.message}; {_what_stands(home, about)}") from error


def _what_stands(home: Home, about: Registration) -> str:
    """Say whether a dataset was entered, where that ended in an error."""
    try:
        entered = about.commitment in (each.registration.commitment for each in home.ledger.datasets())
    except DpserveError:
        return f"whether dataset {about.name} is registered is not known: dpserve dataset show {about.name}"
    return f"dataset {about.name} is {'' if entered else 'not '}registered"


def put_in_place(home: Home, folder: Path, files: Sequence[str], commitment: str, own: Sketch) -> bool:
    """Put a packed `folder` where rows of this commitment lie, while LOCK is held; whether nothing lay there."""
    place = home.datasets / commitment
    is_new = not place.exists()
    is_complete = all((place / name).exists() for name in files)
    if not is_complete or home.keys.commitment(content_of(place, files)) != commitment:
        shutil.rmtree(place, ignore_errors=True)
        folder.rename(place)
    else:  # left by a start that was cut before its entry, or just now another host's: the same rows
        _write_sketch(place, own)
        if (folder / PEOPLE).exists() and not (place / PEOPLE).exists():
            (folder / PEOPLE).rename(place / PEOPLE)
    sync_directory(home.datasets)
    return is_new


def remove_unless_entered(home: Home, commitment: str) -> None:
    """Remove packed rows that were put in their place and not entered: another host that shares the folder, but not
    the lock, may have entered the same rows meanwhile, as a dataset or as a block.
    """
    if all(commitment not in dataset.commitments for dataset in home.ledger.datasets()):
        shutil.rmtree(home.datasets / commitment)


def _check_new_rows(guard: Guard, commitment: str, sketch: Sketch) -> None:
    """Raise NameTaken where these very rows are registered with this schema; a sketch that was lost is then made
    anew.
    """
    home = guard.home
    for dataset in home.ledger.datasets():
        if dataset.registration.commitment == commitment:
            name, place = dataset.registration.name, home.datasets / dataset.registration.commitment
            if place.exists() and not (place / SKETCH).exists():
                _write_sketch(place, sketch)
            refusal = guard.refuse([(name, "rows")])
            if not guard.asker.may_see(name):
                raise refusal
            raise NameTaken(
                f"data: these rows are registered already, as {name}; the same people have one budget", dataset=name
            )


def scan_of(home: Home, schema: Schema, types: Iterable[str], naming: Sequence[str], others: Iterable[Dataset]) -> Scan:
    """Begin a scan of a file's columns that the schema knows, against those sketches of `others` that are in this
    home.
    """
    described = {feature.name for feature in schema.features}
    described |= {*schema.target_names, *schema.ignore}
    columns = [column for column in types if column in described]
    key, stored = sketches(home, others)
    return Scan(key, schema.target_names, columns, naming, stored)


def check_new_people(guard: Guard, others: Sequence[Dataset], scan: Scan, own: Sketch) -> None:
    """Refuse a noticeable share of people or rows that are registered already, to who brings them alone; where that
    cannot be looked at, ask. Either leaves an entry.
    """
    copies = find_copies(others, scan, own)
    if copies:
        raise guard.refuse(copies)
    with guard.answering():
        guard.require_sketches(others, scan.known)


def write_packed(home: Home, folder: Path, files: Sequence[str], raw: bytes, sketch: Sketch) -> str:
    """Write everything down to the disk, with the schema and the sketch; return the commitment over `files`."""
    (folder / "schema.yaml").write_bytes(raw)
    copy_schema(home, raw)
    with ThreadPoolExecutor(1, thread_name_prefix="rows") as pool:
        hashed = pool.submit(home.keys.commitment, content_of(folder, files))
        for file in folder.iterdir():
            file.chmod(PRIVATE)
            sync_file(file)
        _write_sketch(folder, sketch)
        return hashed.result()


def _write_sketch(folder: Path, sketch: Sketch) -> None:
    with replacing(folder / SKETCH) as partial:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            sketch.write(file)
        sync_file(partial)
    sync_directory(folder)


def note(home: Home, name: str, **about: str) -> None:
    """Note in `datasets.json` where the steward's files came from. For people; nothing is decided by it, so what was
    registered before stays so where it cannot be written.
    """
    path = home.path / "datasets.json"
    try:
        notes = json.loads(path.read_text()) if path.exists() else {}
        replace_unsynced(path, f"{json.dumps({**notes, name: about}, indent=2)}\n".encode(), PRIVATE)
    except (OSError, ValueError) as error:
        LOG.warning("datasets.json: %s is registered, and cannot be noted there (%s)", name, type(error).__name__)


def notes_of(home: Home, name: str) -> list[dict[str, str]]:
    """Return what `note` noted of a dataset and its blocks; [] where it cannot be read."""
    try:
        notes: dict[str, dict[str, str]] = json.loads((home.path / "datasets.json").read_text())
        return [about for noted, about in notes.items() if noted.partition("/")[0] == name]
    except (OSError, ValueError):
        return []
