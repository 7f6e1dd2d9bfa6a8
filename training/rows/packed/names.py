"""What the files of packed rows are called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accountant.errors import RowsUnavailable

if TYPE_CHECKING:
    from accountant.home import Home
    from accountant.ledger.families.families import Dataset

SCHEMA = "schema.yaml"
GRID = "cells-of-octaves.npy"  # named for the grid: cells of another one would be read as other numbers
EARLIER_GRID = "cells.npy"  # of rows that an earlier version packed (`earlier_cells`)
COPIES = "schemas"  # the folder of a home with copies of schemas, each by its digest


def schema_file(home: Home, dataset: Dataset) -> Path:
    """Return the file of the schema as registered; its copy, where this process is one that holds no rows.
    RowsUnavailable where it is not in this home.
    """
    path = home.datasets / dataset.registration.commitment / SCHEMA
    if not home.keys.issues and not path.exists():
        path = home.path / COPIES / f"{dataset.registration.schema}.yaml"
        if not path.exists():
            raise RowsUnavailable(
                f"dataset={dataset.registration.name}: its schema is not in {COPIES}/; start a worker where its rows "
                "are, which copies it"
            )
    if not path.exists():
        raise RowsUnavailable(
            f"dataset={dataset.registration.name}: its folder, datasets/{path.parent.name[:8]}..., is not in this "
            "home; bring it back from a backup, or from the disk that has it"
        )
    return path


def row_files(targets: int, part: str | None = None) -> list[str]:
    """Return the file of the bins, and of each target that of its answers; what is kept aside lies in files of its
    own.
    """
    names = ["bins.npy", "labels.npy", *(f"labels-{number}.npy" for number in range(2, targets + 1))]
    return names if part is None else [f"{part}-{name}" for name in names]


def since_file(part: str | None = None) -> str:
    """Return the file that says of each row since which block its person has as many as are used (`packed.persons`)."""
    return "since.npy" if part is None else f"{part}-since.npy"


def firsts_file(part: str | None = None) -> str:
    """Return the file that says of each row whether it is the first of its person."""
    return "firsts.npy" if part is None else f"{part}-firsts.npy"


def cells_file(part: str | None = None, folder: Path | None = None) -> str:
    """Return the file of the fine cells; of a `folder`, the one that is there."""
    name, earlier = (each if part is None else f"{part}-{each}" for each in (GRID, EARLIER_GRID))
    return earlier if folder is not None and not (folder / name).exists() and (folder / earlier).exists() else name
