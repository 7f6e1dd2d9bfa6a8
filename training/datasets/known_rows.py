"""Rows of a file that a registered dataset holds already: `training.datasets.overlap` against the home's sketches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accountant.errors import DataError
from accountant.home import Home
from accountant.ledger.comparisons import EVALUATE
from accountant.ledger.families.families import Dataset
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import locked
from models.features.features import Feature
from training.datasets.copy_guard import LOCK, Asker, Guard, dataset_of
from training.datasets.overlap import LEAST_PEOPLE, SKETCH, Scan, Sketch, merge_sketches
from training.rows.schema.schema import Schema
from training.rows.tables.row_files import file_batches

MOST_BLOCKS = 16  # of a dataset, the newest, each compared by itself: a sketch takes 8 MB of memory
MOST_HELD = 4  # sketches that are read before they are merged into one
GROUPS = 8  # of older ones, each compared by a sketch of all its blocks, which takes as much


def sketches(home: Home, datasets: Iterable[Dataset]) -> tuple[bytes, dict[str, Sketch]]:
    """Return the key of fingerprints, and the sketch of each dataset's rows, and of its blocks'. The oldest blocks of a
    dataset that has many are compared in groups.
    """
    places = {}
    for dataset in datasets:
        places[dataset.registration.name] = [home.datasets / dataset.registration.commitment / SKETCH]
        for label, blocks in groups_of(dataset).items():
            places[label] = [home.datasets / commitment / SKETCH for commitment in blocks.values()]
    stored = {}
    for label, files in places.items():
        group: list[Sketch] = []
        for file in files:
            if file.exists():
                group.append(Sketch.read(file))
            if len(group) > MOST_HELD:
                group = [merge_sketches(group)]
        if group:
            stored[label] = group[0] if len(group) == 1 else merge_sketches(group)
    return bytes.fromhex(home.keys.commitment([b"the key of sketches"])), stored


def groups_of(dataset: Dataset) -> dict[str, dict[int, str]]:
    """Return the blocks behind the first whose rows are compared together, as `sketches` calls them: number ->
    commitment.
    """
    blocks = [(block.number, block.commitment) for block in dataset.blocks if block.number > 1]
    old, new = blocks[:-MOST_BLOCKS], blocks[-MOST_BLOCKS:]
    size = -(-len(old) // GROUPS) or 1
    parts = [dict(old[at : at + size]) for at in range(0, len(old), size)] + [dict([block]) for block in new]
    spans = [f"block {min(part)}" if len(part) == 1 else f"blocks {min(part)} to {max(part)}" for part in parts]
    return {f"{dataset.registration.name}, {span}": part for span, part in zip(spans, parts, strict=True)}


def block_with(home: Home, blocks: Mapping[int, str], label: str, scan: Scan, own: Sketch) -> int:
    """Return which of the blocks that `label` names holds most of the rows that were found there."""
    shares = {}
    for number, commitment in blocks.items():
        if (file := home.datasets / commitment / SKETCH).exists():
            shares[number] = scan.same_rows(label, own, Sketch.read(file), by_values=False)
    return max(shares, key=lambda number: shares[number])


def block_of(home: Home, dataset: Dataset, own: Sketch) -> int | None:
    """Return the newest block of a dataset whose file had the rows of `own`, all of them and no others; None where none
    did, as far as sketches are in this home.
    """
    blocks = [(block.number, block.commitment) for block in dataset.blocks] or [(1, dataset.commitments[0])]
    for number, commitment in reversed(blocks):
        file = home.datasets / commitment / SKETCH
        if file.exists() and Sketch.read(file).equals(own):
            return number
    return None


@dataclass(frozen=True)
class Door:
    """Where a file of rows that are nobody's secret comes in: for a model of `dataset`, or to begin one from.
    `instead`: what its bringer does where its rows stand in a dataset, whose name takes the place of {}.
    """

    home: Home
    dataset: str
    asker: Asker
    instead: str


def require_unregistered(
    door: Door, path: Path, columns: Sequence[Feature], schema: Schema | None, is_public: bool
) -> str:
    """Return the sha256 of a file, in hex. InputError where its rows stand in a registered dataset, and else as
    `find_registered`; DataError where it cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"data={path}: cannot be read ({error.strerror})") from None
    data = door.home.keys.commitment([b"a file ", digest.encode()])
    guard = Guard(door.home, EVALUATE, door.dataset, door.asker, data)
    registered = find_registered(guard, path, columns, schema, is_public)
    if registered is not None and not door.asker.may_see(dataset_of(registered)):
        raise InputError(
            f"data={path.name}: its rows look registered, in a dataset that you may not see, and are private; ask its "
            "steward"
        )
    if registered is not None:
        raise InputError(
            f"data={path.name}: its rows stand in the dataset {registered}, and are private: "
            f"{door.instead.format(registered)}"
        )
    return digest


def find_registered(
    guard: Guard, path: Path, columns: Sequence[Feature], schema: Schema | None, is_public: bool
) -> str | None:
    """Return the label of the dataset in which a noticeable share of a file's rows stands, by these columns, the last
    of them the target; None where there is none. Either leaves an entry, and counts among the answers of an hour.

    `is_public`: who brings the rows says that they are nobody's secret; few, which are not compared, need that word.

    Raises:
        InputError: too few rows to be compared, without that word; or too many answers in the last hour.
        DataError: the file has no rows.
    """
    home, names = guard.home, [column.name for column in columns]
    key, stored = sketches(home, home.ledger.datasets())
    scan, start = Scan(key, names[-1:], names, [], stored), 0
    for batch in file_batches(path, columns, schema):
        scan(batch, start)
        start += len(batch)
    if not start:
        raise DataError(f"data={path.name}: the file has no rows")
    sketch = scan.sketch()
    if not stored or (is_public and sketch.rows < LEAST_PEOPLE):
        return None
    guard.require_enough(sketch, None, home.ledger.datasets())
    with locked(home.path / LOCK):
        guard.require_answers_left()
        copies = [name for name in stored if scan.same_rows(name, sketch)]
        guard.record(copies)
    return copies[0] if copies else None
