"""Rows made from a schema alone, to try programs with: nobody's, free, and marked as such.

The same seed gives the same rows on every machine: they come from SHAKE-256, column by column.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from accountant.home import Home
from accountant.system.outputs import writing
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import replacing
from models.features.features import BooleanFeature, CalendarFeature, CategoricalFeature, Feature, NumericFeature
from training.rows.schema.schema import Schema, Target
from training.rows.sources.cells import as_written
from training.rows.sources.folders import find_files


@dataclass(frozen=True)
class Mark:
    """What says that a file's rows are nobody's: `word` in its name, before its suffix; `metadata` in a .parquet, or in
    the file beside a .csv.
    """

    word: str
    metadata: bytes


MADE_UP, SYNTHETIC = Mark("made-up", b"dpserve.made-up"), Mark("synthetic", b"dpserve.synthetic")
MARKS = (MADE_UP, SYNTHETIC)
MOST_ROWS = 10_000_000
MISSING, OTHER = 0.03, 0.02  # shares of values that are missing, or that the schema does not list
UNLISTED = "not-in-the-schema"
CODE = re.compile("0|-?[1-9][0-9]{0,17}")  # a whole number that is written in no other way; 010 is a text


def write_made_up(schema: Schema, rows: int, path: Path, seed: int = 0) -> None:
    """Write `rows` rows of every column, targets last, to a .parquet or .csv file whose name says that they are made
    up.
    """
    check_name(path, MADE_UP)
    if not 1 <= rows <= MOST_ROWS:
        raise InputError(f"rows={rows}: must be 1 to {MOST_ROWS}")
    write_rows(schema, made_up_columns(schema, rows, seed), path, {MADE_UP.metadata: b"true"})


def made_up_columns(schema: Schema, rows: int, seed: int = 0) -> dict[str, pa.Array]:
    """Make `rows` values of every column up, targets last."""
    names = {feature.name for feature in schema.stored}
    columns = {column.name: _feature(column, schema, rows, seed) for column in (*schema.groups, *schema.features)}
    if (weight := schema.weight) is not None:
        columns[weight.column] = pa.array(uniform_numbers(seed, weight.column, "value", rows) * float(weight.most))
    return columns | {column.name: _target(column, rows, seed) for column in schema.targets if column.name not in names}


def check_name(path: Path, mark: Mark) -> None:
    """Raise InputError unless a file's name says whose rows it has: nobody's."""
    if path.suffix not in (".parquet", ".csv"):
        raise InputError(f"out={path.name}: must end in .parquet or .csv")
    if mark.word not in path.stem:
        raise InputError(
            f"out={path.name}: its name must say that the rows are {mark.word.replace('-', ' ')}, for instance "
            f"{path.stem}.{mark.word}{path.suffix}"
        )


def write_rows(schema: Schema, columns: dict[str, pa.Array], path: Path, metadata: dict[bytes, bytes]) -> None:
    """Write columns as a .parquet with this metadata, or as a .csv as the schema says that files are written."""
    try:
        with writing(path), replacing(path) as partial:
            if path.suffix == ".parquet":
                pyarrow.parquet.write_table(pa.table(columns).replace_schema_metadata(metadata), partial)
            else:
                _write_csv(schema, columns, partial)
    except UnicodeEncodeError:
        raise InputError(f"out={path.name}: a category cannot be written in {schema.form.encoding}") from None


def _write_csv(schema: Schema, columns: dict[str, pa.Array], path: Path) -> None:
    """Write a .csv as the schema says that files are written."""
    form = schema.form
    if form.delimiter == " ":
        raise InputError("out: cells that are missing cannot be parted by blanks; name a .parquet")
    described = {declared.name: declared for declared in schema.stored}
    described |= {
        declared.name: NumericFeature(declared.name, ()) for declared in schema.targets if declared.classes is None
    }
    texts = {
        name: as_written(described[name], column, schema.written_as(name)) if name in described else column
        for name, column in columns.items()
    }
    pyarrow.csv.write_csv(
        pa.table(texts), path, pyarrow.csv.WriteOptions(include_header=not form.columns, delimiter=form.mark)
    )
    if form.encoding != "utf-8" or form.skip:
        path.write_bytes(("\n" * form.skip + path.read_bytes().decode()).encode(form.encoding))


def write_mark(path: Path, mark: Mark, about: Mapping[str, Any]) -> None:
    """Write what a .csv, which has no room for it, says of itself, into a file beside it: its own sha256 first."""
    body = {"sha256": sha256_of(path), **about}
    place = mark_beside(path)
    with writing(place), replacing(place) as partial:
        partial.write_text(json.dumps({mark.metadata.decode(): body}, indent=1) + "\n", "utf-8")


def mark_beside(path: Path) -> Path:
    """Return where the mark of a .csv stands."""
    return path.with_name(f"{path.name}.mark.json")


def read_mark(path: Path, mark: Mark) -> dict[str, Any] | None:
    """Return what a file says of itself by a mark: within it, where its format has room, or in the file beside it;
    {} where its name alone says it; None where nothing does.
    """
    try:
        if path.suffix == ".parquet":
            metadata = pyarrow.parquet.read_schema(path).metadata
        elif path.suffix in (".arrow", ".feather"):
            metadata = pa.ipc.open_file(path).schema.metadata
        else:
            body = json.loads(mark_beside(path).read_bytes())[mark.metadata.decode()]
            metadata = {mark.metadata: json.dumps(body).encode()} if body["sha256"] == sha256_of(path) else None
        about = json.loads((metadata or {})[mark.metadata])
        return about if isinstance(about, dict) else {}
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):  # who reads the rows says what is wrong
        pass
    return {} if mark.word in path.name else None


def profiles_behind(home: Home, path: Path) -> tuple[int, ...]:
    """Return the `profiled` entries of the profiles that a file's rows were drawn from, as its mark says; none of a
    file that bears no mark. InputError where it says that its rows are synthetic, and not of which profile of this
    ledger: what they hold could then not be stated.
    """
    about = read_mark(path, SYNTHETIC)
    if about is None:
        return ()
    origin, entry = about.get("origin"), about.get("entry")
    if origin != home.ledger.log.origin or type(entry) is not int:
        of = f"the ledger {origin:.80}" if isinstance(origin, str) else "no profile that it names"
        raise InputError(
            f"data={path.name}: is of synthetic rows of {of}, so what they hold of whom cannot be stated here; draw "
            "them from a profile of this ledger (dpserve synthesize --out NAME.synthetic.parquet)"
        )
    return (entry,)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_made_up(path: Path) -> bool:
    """Return whether a file says that its rows are made up, or synthetic: by its name or its mark."""
    files = [path, *find_files(path)[1]]
    return any(mark.word in each.name or read_mark(each, mark) is not None for each in files for mark in MARKS)


def require_real(path: Path, allowed: bool) -> None:
    """Raise InputError where a file says that its rows are made up, unless that is `allowed`."""
    if is_made_up(path) and not allowed:
        raise InputError(
            f"data={path.name}: its rows are made up or synthetic, and are nobody's; to try things with them: --made-up"
        )


def _feature(feature: Feature, schema: Schema, rows: int, seed: int) -> pa.Array:
    chance, place = (uniform_numbers(seed, feature.name, part, rows) for part in ("missing", "value"))
    missing = chance < MISSING
    target = next(
        (candidate for candidate in schema.targets if candidate.name == feature.name and not candidate.leave_out), None
    )
    if target is not None:  # a feature of other targets' models, and no answer of its own may be missing
        return _target(target, rows, seed)
    if isinstance(feature, BooleanFeature):
        return pa.array(place < 0.5, mask=missing)
    if isinstance(feature, CategoricalFeature):
        texts = np.array([*feature.values, UNLISTED], object)[(place * len(feature.values)).astype(int)]
        if all(map(CODE.fullmatch, feature.values)):
            return pa.array(texts.astype(np.int64), mask=missing)
        return pa.array(np.where(chance > 1 - OTHER, UNLISTED, texts), mask=missing)
    low, high = schema.ends[feature.name]
    if isinstance(feature, CalendarFeature):
        return typed_whole(feature, np.floor(low + (high - low) * place).astype(np.int64), missing)
    return _numbers(place, low, high, missing)


def _target(target: Target, rows: int, seed: int) -> pa.Array:
    chance, place = (uniform_numbers(seed, target.name, part, rows) for part in ("missing", "value"))
    missing = (chance < MISSING) & target.leave_out
    if target.classes is None:
        return _numbers(place, *(target.range or (0.0, 1.0)), missing)
    are_whole = all(isinstance(label, int) for label in target.classes)  # of one type: texts, unless all are
    classes = [label if are_whole else str(label) for label in target.classes]
    labels: NDArray[Any] = np.array(classes, object)[(place * len(classes)).astype(int)]
    return pa.array(labels.tolist(), mask=missing)


def typed_whole(feature: Feature, whole: NDArray[np.int64], missing: NDArray[np.bool_]) -> pa.Array:
    """Return whole numbers as the feature's type has them: dates, moments and times too."""
    match feature.kind:
        case "datetime":
            return pa.array(whole, pa.timestamp("s"), mask=missing)
        case "date":
            return pa.array(whole.astype(np.int32), pa.date32(), mask=missing)
        case "time":
            return pa.array(whole.astype(np.int32), pa.time32("s"), mask=missing)
    return pa.array(whole, mask=missing)


def _numbers(place: NDArray[np.float64], low: float, high: float, missing: NDArray[np.bool_]) -> pa.Array:
    """Spread values evenly between `low` and `high`; whole numbers where both ends are whole and far enough apart."""
    values = low + (high - low) * place
    are_whole = low == int(low) and high == int(high) and 10 <= high - low < 2**53
    return pa.array(np.rint(values).astype(np.int64) if are_whole else values, mask=missing)


def uniform_numbers(seed: int, column: str, part: str, rows: int) -> NDArray[np.float64]:
    """Return (rows,) numbers from 0 up to 1, that follow from these alone."""
    words = np.frombuffer(hashlib.shake_256(f"{seed}/{part}/{column}".encode()).digest(8 * rows), "<u8")
    return np.asarray((words >> np.uint64(11)) * 2.0**-53)
