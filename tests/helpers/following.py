"""A person who does to the letter what the check of a file says, and knows what the file means, as a program.

What is refused is mended by the remedies that its problems bring, step by step, until the file is admitted; what is
read of it in the end is for the caller to compare.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from accountant.errors import DataError, SchemaError
from dpserve_verify.errors import InputError
from training.datasets.file_check import check_file
from training.rows.schema.schema import Schema, parse_schema
from training.rows.sources.folders import open_table
from training.rows.tables.file_check import Problem, problem_of
from training.rows.tables.remedies import LISTS, Remedy, Unsaid

MOST = 8  # steps: a file with as many things wrong at once is no test of one
_NO_UNIT = re.compile(r"[-+\u2212\u2010-\u2014()\d.,'’\s]+")


@dataclass
class Known:
    """What a person knows: the declaration of each column as it is `meant`; the others are left out. `written`: parts
    of the file as they are written anew.
    """

    meant: Mapping[str, Mapping[str, Any]]
    written: Mapping[str, str] = field(default_factory=dict)
    is_missing: Callable[[str], bool] = lambda text: not re.search(r"\d", text)  # of a word
    deletes: bool = True  # rows that are nobody's; else they are passed over
    delete: Callable[[Path, Sequence[int]], None] | None = None


@dataclass
class Followed:
    """Where following ended: `end` is admitted, anew (the file must be written anew), dead (nothing can be done),
    circle or refused (the schema is); `words`: of the last problem. `problems`: all that was said, `steps`: what was
    done.
    """

    end: str
    problems: list[str]
    steps: list[str]
    words: str
    schema: Schema | None
    body: dict[str, Any]


def follow(path: Path, body: Mapping[str, Any], known: Known) -> Followed:
    """Follow the remedies of a file's refusals from a schema on."""
    body, steps, seen, said = copy.deepcopy(dict(body)), list[str](), list[Any](), list[str]()
    while True:
        try:
            schema = parse_schema(yaml.safe_dump(body, allow_unicode=True, sort_keys=False).encode())
            problems = [*check_file(schema, path).problems]
        except (SchemaError, InputError) as error:
            return Followed("refused", said, steps, error.message, None, body)
        except DataError as error:
            problems = [problem_of(error)]
        if not problems:
            return Followed("admitted", said, steps, "", schema, body)
        said += map(str, problems)
        state = (copy.deepcopy(body), path.read_bytes())
        if state in seen or len(steps) >= MOST:
            return Followed("circle", said, steps, str(problems[0]), schema, body)
        seen.append(state)
        done = next(((each, step) for each in problems if (step := _choose(each, body, path, known))), None)
        if done is None:
            end = "anew" if any(not each.say and not each.deletes for each in problems[0].remedies) else "dead"
            return Followed(end, said, steps, str(problems[0]), schema, body)
        problem, remedy = done
        steps.append(f"{problem.column}: {remedy}")
        body = _do(problem, remedy, body, path, known)


def _choose(problem: Problem, body: Mapping[str, Any], path: Path, known: Known) -> Remedy | None:
    """Return the first remedy that agrees with what the person knows, and changes something."""
    for remedy in problem.remedies:
        if remedy.deletes:
            if known.deletes and problem.rows:
                return remedy
        elif not remedy.say:
            if _mended(path, known) is not None:
                return remedy
        elif (
            all(_agrees(key, value, problem, body, path, known) for key, value in remedy.say.items())
            and _do(problem, remedy, body, path, known) != body
        ):
            return remedy
    return None


def _agrees(key: str, value: Any, problem: Problem, body: Mapping[str, Any], path: Path, known: Known) -> bool:
    meant = known.meant.get(problem.column, {})
    if key in ("ignore", "features"):
        return problem.column not in known.meant
    if key in ("true_words", "false_words", "classes", "missing_words"):
        texts = _cells(problem, body, path)
        listed = [
            str(each) for name in ("true_words", "false_words", "classes", "values") for each in meant.get(name, ())
        ]
        if key == "missing_words":
            return not set(texts) & set(listed) and any(map(known.is_missing, texts))
        return any(text in map(str, meant.get(key, ())) for text in texts)
    if isinstance(value, Unsaid) or not problem.column:
        return not isinstance(value, Unsaid) or key in meant or value in (Unsaid.UNIT, Unsaid.WRITTEN)
    if key == "skip_rows":
        return True
    if key in ("outside", "other", "missing", "type"):
        return meant.get(key) == value
    if key == "written":
        return set(meant.get(key, value)) <= set(value)
    return meant.get(key, value) == value


def _do(problem: Problem, remedy: Remedy, body: dict[str, Any], path: Path, known: Known) -> dict[str, Any]:
    body = copy.deepcopy(body)
    if remedy.deletes:
        (known.delete or delete_lines)(path, problem.rows)
        return body
    if not remedy.say:
        mended = _mended(path, known)
        assert mended is not None
        path.write_bytes(mended)
        return body
    place = {"schema": body, "format": body.setdefault("format", {}) if remedy.place == "format" else {}}.get(
        remedy.place
    )
    if place is None:
        place = _declaration(body, problem.column)
    if "type" in remedy.say:
        place.clear()
    for key, value in remedy.say.items():
        if remedy.leave_out:
            for each in value if isinstance(value, list) else [None]:
                place[key].pop(problem.column) if each else place.pop(key)
        elif key in LISTS:
            texts = [text for each in value for text in _texts(each, problem, body, path, known)]
            if key == "missing_words":
                texts = [*filter(known.is_missing, texts)]
            if key in ("true_words", "false_words", "classes"):
                texts = [text for text in texts if text in known.meant[problem.column][key]]
            place[key] = [*dict.fromkeys([*place.get(key, ()), *texts])]
        else:
            place[key] = _texts(value, problem, body, path, known, key)[0] if isinstance(value, Unsaid) else value
    return body


def _texts(value: Any, problem: Problem, body: Mapping[str, Any], path: Path, known: Known, key: str = "") -> list[Any]:
    if value == Unsaid.CELL:
        return _cells(problem, body, path)
    if value == Unsaid.FIRST:
        rows = _rows(body, path)
        return [
            next((text for cell in rows[at].values() if (text := str(cell or "").strip())), "") for at in problem.rows
        ]
    if value == Unsaid.UNIT:
        return [_NO_UNIT.sub("", _cells(problem, body, path)[0])]
    if value == Unsaid.COLUMN:
        return [problem.column]
    if value == Unsaid.WRITTEN:
        return [[*dict.fromkeys(str(row[problem.column]) for row in _rows(body, path).values() if row[problem.column])]]
    if isinstance(value, Unsaid):
        return [known.meant[problem.column][key]]
    return [value]


def _declaration(body: dict[str, Any], column: str) -> dict[str, Any]:
    if body.get("target", {}).get("name") == column:
        return body["target"]
    return next(body[part][column] for part in ("targets", "features", "groups") if column in body.get(part, {}))


def _cells(problem: Problem, body: Mapping[str, Any], path: Path) -> list[str]:
    rows = _rows(body, path)
    return [str(rows[at].get(problem.column) or "").strip() for at in problem.rows if at in rows]


def _rows(body: Mapping[str, Any], path: Path) -> dict[int, dict[str, Any]]:
    """Read the cells of each row, by where it stands as a spreadsheet counts."""
    form = parse_schema(yaml.safe_dump(dict(body)).encode()).form
    rows = dict[int, dict[str, Any]]()
    for part in open_table(path, form).parts:
        for placed in part.placed([*part.types()]):
            batch = pa.RecordBatch.from_pydict(dict(placed.columns))
            rows |= zip(placed.places, batch.to_pylist(), strict=True)
            rows |= {at: dict(zip(part.types(), cells, strict=False)) for at, cells in placed.odd.items()}
    return rows


def _mended(path: Path, known: Known) -> bytes | None:
    """Return the file with what a person writes anew; None where nothing is."""
    before = after = path.read_bytes()
    for wrong, right in known.written.items():
        after = after.replace(wrong.encode(), right.encode())
    return None if after == before else after


def delete_lines(path: Path, rows: Sequence[int]) -> None:
    """Delete lines of a text, as a spreadsheet counts them."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for at, line in enumerate(lines, 1) if at not in rows))
