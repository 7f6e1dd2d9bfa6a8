"""The rows of a started profile: chosen columns, targets among them, in public bins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accountant.home import Home
from accountant.ledger.families.families import Started
from accountant.system.numpy_files import map_array
from training.datasets.datasets import begins_of, check_folders
from training.rows.packed.names import row_files, since_file
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema
from training.rows.tables.data import answer_codes, answer_feature


def open_table(home: Home, started: Started, schema: Schema, columns: Sequence[str]) -> Rows:
    """Map the packed rows of a job on these columns, in their order, after checking that they are those that were
    registered: every row of its part, with an answer or without. Answers stand in the bins of `answer_feature`; of
    labels there are none.
    """
    folders = zip(check_folders(home, started), begins_of(started.dataset), strict=True)
    return Rows.joined([_open(folder, started, schema, columns, begins) for folder, begins in folders])


def _open(folder: Path, started: Started, schema: Schema, columns: Sequence[str], begins: int | None) -> Rows:
    files = row_files(len(schema.targets), started.request.part)
    bins, *answers = (map_array(folder / name) for name in files)
    if begins is not None:
        used = map_array(folder / since_file(started.request.part)) < begins
        bins, answers = bins[:, used], [answer[used] for answer in answers]
    by_name = {
        feature.name: (feature.bins, codes)
        for feature, codes in zip(schema.features, bins[: len(schema.features)], strict=True)
    }
    for target, column in zip(schema.targets, answers, strict=True):
        if target.name in columns and target.name not in by_name:
            by_name[target.name] = answer_feature(target).bins, answer_codes(target, column)
    widths, codes = zip(*(by_name[name] for name in columns), strict=True)
    return Rows(np.stack(codes), np.zeros(bins.shape[1], np.uint8), widths)
