"""Rows of a file that stand in a registered dataset already: `training.rows.overlap` against the home's sketches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from accountant.home import Home
from accountant.ledger.families import Dataset
from models.features import Feature
from training.rows.overlap import SKETCH, Scan, Sketch
from training.rows.row_files import file_batches
from training.rows.schema import Schema

MOST_BLOCKS = 16  # of a dataset, the newest, whose rows are compared: a sketch takes 8 MB of memory


def sketches(home: Home, datasets: Iterable[Dataset]) -> tuple[bytes, dict[str, Sketch]]:
    """The key of fingerprints, and what is kept of each dataset's rows, and of its newest blocks': older registrations
    have nothing.
    """
    places = {}
    for each in datasets:
        name = each.registration.name
        places[name] = home.datasets / each.registration.commitment / SKETCH
        for block in each.blocks[-MOST_BLOCKS:]:
            if block.number > 1:
                places[f"{name}, block {block.number}"] = home.datasets / block.commitment / SKETCH
    known = {name: Sketch.read(place) for name, place in places.items() if place.exists()}
    return bytes.fromhex(home.keys.commitment([b"the key of sketches"])), known


def registered_as(home: Home, path: Path, columns: Sequence[Feature], schema: Schema | None = None) -> str | None:
    """The dataset in which a noticeable share of a file's rows stands, by these columns, the last of them the target;
    None where there is none.
    """
    names, (key, known) = [column.name for column in columns], sketches(home, home.ledger.datasets())
    scan, start = Scan(key, names[-1:], names, [], known), 0
    for batch in file_batches(path, columns, schema):
        scan(batch, start)
        start += len(batch)
    own = scan.sketch()
    return next((name for name in known if start and scan.same_rows(name, own)), None)
