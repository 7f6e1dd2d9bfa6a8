"""Synthetic rows as a file: of the schema's types, drawn from a profile that was paid for, and marked as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from accountant.certificates.profile import PROFILE, Profile
from accountant.home import Home
from dpserve_verify.errors import InputError
from models.features.features import BooleanFeature, CalendarFeature, NumericFeature
from models.profile.columns import Column
from models.profile.synthetic import Bins, counted_rows, synthesize
from training.datasets.made_up import (
    CODE,
    MOST_ROWS,
    SYNTHETIC,
    UNLISTED,
    check_name,
    typed_whole,
    uniform_numbers,
    write_mark,
    write_rows,
)
from training.measuring.profile.profile import columns_of
from training.rows.schema.schema import Schema, Target, schema_of

Floats = NDArray[np.float64]


def from_profile(
    home: Home, job: int, path: Path, rows: int | None, seed: int, dataset: str, most: int = MOST_ROWS
) -> dict[str, Any]:
    """Write synthetic rows from a finished profile of this home, and say what they are and how near they come: as many
    as were counted, and at most `most`, where `rows` is None.
    """
    check_name(path, SYNTHETIC)
    profile = PROFILE.open(home, job)[2]
    if profile.form.rows.dataset != dataset:
        raise InputError(f"from-profile={job}: is of dataset {profile.form.rows.dataset}, not of {dataset}")
    schema = schema_of(home, home.ledger.dataset_of(job))
    return write_synthetic(schema, profile, path, min(most, counted_rows(profile)) if rows is None else rows, seed)


def write_synthetic(schema: Schema, profile: Profile, path: Path, rows: int, seed: int) -> dict[str, Any]:
    """Write synthetic rows to a .parquet or .csv file, and say what they are and how near they come. InputError unless
    the profile is about this schema.
    """
    if not 1 <= rows <= MOST_ROWS:
        raise InputError(f"rows={rows}: must be 1 to {MOST_ROWS}")
    if schema.digest != profile.sha256:
        raise InputError(f"schema: is not the file that the profile is about, sha256 {profile.sha256[:16]}..")
    targets = {target.name: target for target in schema.targets}
    declared = {column.name: column for column in columns_of(schema)}
    never = {
        name: range(declared[name].bins - 1 if target.classes is None else len(target.classes), declared[name].bins)
        for name, target in targets.items()
        if not target.leave_out  # of which no answer is missing, or another value
    }
    synthetic = synthesize(profile, rows, seed, never)
    columns = {
        column.name: values_of(declared[column.name], targets.get(column.name), bins, seed)
        for column, bins in zip(synthetic.columns, synthetic.bins, strict=True)
    }
    form = profile.form
    about = {
        "dataset": form.rows.dataset, "entry": profile.entry, "epsilon": form.claim.epsilon,
        "delta": form.claim.delta, "schema": profile.sha256, "origin": form.ledger.origin, "seed": seed,
        "rows": len(synthetic.bins[0]), "summary": synthetic.summary(), "quality": [*synthetic.quality],
    }  # fmt: skip
    write_rows(schema, columns, path, {SYNTHETIC.metadata: json.dumps(about).encode()})
    if path.suffix == ".csv":
        write_mark(path, SYNTHETIC, about)
    return about


def describe(parquet: bytes) -> dict[str, Any]:
    """Return what a .parquet of synthetic rows says of itself."""
    return dict(json.loads(pyarrow.parquet.read_schema(pa.BufferReader(parquet)).metadata[SYNTHETIC.metadata]))


def values_of(column: Column, target: Target | None, bins: Bins, seed: int) -> pa.Array:
    """Return values in these bins, of the type that the schema says, the same for the same seed."""
    feature, missing = column.feature, bins == column.bins - 1
    if target is not None and target.classes is not None:
        labels = [*target.classes, *[None] * (column.bins - len(target.classes))]
        return pa.array([labels[each] for each in bins.tolist()])
    if isinstance(feature, NumericFeature):
        return _numbers(column, bins, missing, seed)
    if isinstance(feature, BooleanFeature):
        return pa.array(bins == 1, mask=missing)
    if all(map(CODE.fullmatch, feature.values)):
        codes = np.array([*map(int, feature.values), 0, 0], np.int64)
        return pa.array(codes[bins], mask=bins >= len(feature.values))
    return pa.array(np.array([*feature.values, UNLISTED, ""], object)[bins], mask=missing)


def _numbers(column: Column, bins: Bins, missing: NDArray[np.bool_], seed: int) -> pa.Array:
    """Spread numbers evenly in their bins, above the low end and up to the high one; whole ones where both ends of the
    column are whole and each bin has one, so that no number leaves its bin.
    """
    low, high = column.limits
    first, last = np.where(np.arange(low.size) == 0, np.ceil(low), np.floor(low) + 1), np.floor(high)
    ends = np.array(column.ends)
    is_whole = bool((ends == np.rint(ends)).all() and ((first <= last) | (low == high)).all())
    place = uniform_numbers(seed, column.name, "synthetic", len(bins))
    at = np.where(missing, 0, bins)
    if not (is_whole or isinstance(column.feature, CalendarFeature)):
        return pa.array(high[at] - (high - low)[at] * place, mask=missing)
    spread = first[at] + np.floor((last - first + 1)[at] * place)
    return typed_whole(column.feature, np.where((first <= last)[at], spread, last[at]).astype(np.int64), missing)
