"""The rows of a started profile: chosen columns, targets among them, in public bins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accountant.home import Home
from accountant.ledger.families import Started
from training.rows.data import answer_codes, answer_feature
from training.rows.datasets import checked
from training.rows.packed.names import row_files
from training.rows.rows import Rows
from training.rows.schema import Schema


def open_table(home: Home, started: Started, schema: Schema, columns: Sequence[str]) -> Rows:
    """Map the packed rows of a job on these columns, in their order, after checking that they are those that were
    registered: every row of its part, with an answer or without. Answers stand in the bins of `answer_feature`; of
    labels there are none.
    """
    return Rows.joined([_open(folder, started, schema, columns) for folder in checked(home, started)])


def _open(folder: Path, started: Started, schema: Schema, columns: Sequence[str]) -> Rows:
    files = row_files(len(schema.targets), started.request.part)
    bins, *answers = (np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in files)
    found = {
        feature.name: (feature.bins, codes)
        for feature, codes in zip(schema.features, bins[: len(schema.features)], strict=True)
    }
    for target, own in zip(schema.targets, answers, strict=True):
        if target.name in columns and target.name not in found:
            found[target.name] = answer_feature(target).bins, answer_codes(target, own)
    widths, codes = zip(*(found[name] for name in columns), strict=True)
    return Rows(np.stack(codes), np.zeros(bins.shape[1], np.uint8), widths)
