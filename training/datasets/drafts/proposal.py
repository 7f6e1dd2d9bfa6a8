"""A proposal of a file's schema: what names, types and cells say, with all that a person must say left open.

The same object is behind `dpserve schema draft`, `dpserve dataset guide`, the browser's registration and the notebook's
`draft`. No range and no category is ever taken from rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.features.column_law import is_text
from models.features.date_patterns import has_short_year
from models.features.reading import LONGEST, is_column_name
from models.features.written import PLAIN, Form
from training.datasets.drafts.columns import (
    ROLES,
    ColumnAnswer,
    ColumnGroup,
    feature_of_answer,
    group_columns,
    target_of_answer,
    unit_of,
)
from training.datasets.unit_candidates import find_candidates, repeats
from training.rows.people.id_words import IDS, is_id, names_people, words_of
from training.rows.people.people import missing_texts
from training.rows.schema.schema import KINDS, called_again, has_no_name, parse_schema
from training.rows.schema.schema_text import FILL_IN
from training.rows.sources.cell_kinds import VALUES, Kind
from training.rows.sources.cell_tables import split_sheet
from training.rows.sources.encoding import can_decode, describe_readings, list_readings
from training.rows.sources.files import form_ending
from training.rows.sources.first_rows import FirstRows, look_at_first_rows
from training.rows.sources.folders import open_table
from training.rows.sources.sniff import form_of
from training.rows.sources.text_bytes import TEXT
from training.rows.tables.data import reading
from training.rows.tables.form_search import (
    EMPTY,
    TYPED,
    Cells,
    ColumnForm,
    Question,
    find_forms,
    kinds_of,
    scattered,
)
from training.rows.tables.form_search import TEXT as TEXTS
from training.rows.tables.row_files import column_types

ID_WORDS = frozenset(["id", "ids", "uuid", "guid", "uid", "key", "hash"])
TIME_WORDS = frozenset(["date", "time", "datetime", "timestamp", "birthday", "datum", "zeit"])
TEXT_WORDS = {
    "comment", "comments", "text", "note", "notes", "description", "remark", "remarks", "freetext", "commentaire",
    "commentaires", "remarque", "remarques", "bemerkung", "bemerkungen", "kommentar", "kommentare", "comentario",
    "comentarios", "observaciones", "commento", "opmerking",
}  # fmt: skip
UNREAD = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_duration)
FIRST_CELLS, CELL_LENGTH = 5, 24  # of each column, that its steward is shown
MAX_ROWS = 100_000  # whose cells are looked at, and of MORE_ROWS after them a SHARE, scattered
MORE_ROWS, SHARE, BYTES_AT_ONCE = 1_000_000, 0.1, 1 << 25
MOST_LISTED = 1_000  # categories that somebody writes down
FEW_ROWS = 100  # of which most texts may differ
MAX_PARTS = 20  # files of a folder, whose encoding is looked at
YEARS = f" {' '.join(map(str, range(1900, 2101)))} "  # which columns may be called, one after the other
NUMERIC: Mapping[str, Any] = {"type": "numeric", "range": [FILL_IN, FILL_IN], "bins": 32}
CATEGORICAL: Mapping[str, Any] = {"type": "categorical", "values": FILL_IN}
OR_CODES = "or, where the numbers are codes: {type: categorical, values: FILL-IN}"
UNSEEN = "No value was read, and dpserve never fills this in from rows."
SEEN = f"""Cells were looked at for how they are written,
# in the first {MAX_ROWS} rows and some after them, and for nothing else: dpserve never fills in ranges or categories
# from rows."""
HEAD = """\
# Draft from the column names and types of {name}. {seen}
# Replace every FILL-IN by what is publicly known: ranges from the meaning of a column, categories from the code book.
target: {{name: FILL-IN, classes: FILL-IN{asked}}} # the column to predict (delete it below), its classes: ["no", "yes"]
# (where a class is rare, say about how rare, from public knowledge: prevalence: 0.02, of the last of two classes)
# (where rows may lack it: missing: leave-out; such rows are in no job about it{or_else})
# (to predict a number, its public range stands in place of the classes: range: [low, high])
# (several questions about the same people, on one budget: in place of target,
#  targets: {{NAME: {{classes: [...]}}, NAME: {{range: [low, high]}}}}; a job then says which: --target NAME)
records: FILL-IN # replace-one: the public count; add-remove: a public guess
features:
"""


GAPLESS = {"asked": "", "or_else": ""}


@dataclass(frozen=True)
class SchemaProposal:
    """What is proposed of the columns of one file.

    features: column -> its declaration as a schema has it, FILL_IN where a person must say it.
    ignore: column -> why it is left out.
    people: columns that may name persons, the likeliest first, by their names or by how their values repeat.
    format: how the file is written, where that is not as usual.
    remarks: column -> a comment for the person who fills in its declaration.
    questions: column -> how its cells may be read, where they do not say which, and some cells by each reading: for the
        steward of the file alone, part of no draft.
    reading: what the likely encodings make of the file's words, for its steward alone: part of no draft.
    cells: column -> its first cells, for the steward of the file alone.
    has_gaps: whether a cell of some column was seen to be missing.
    people_words: what tells the likeliest of `people` apart, for the steward of the file alone: part of no draft.
    """

    features: Mapping[str, Mapping[str, Any]]
    ignore: Mapping[str, str]
    people: Sequence[str] = ()
    format: Mapping[str, Any] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    questions: Mapping[str, Question] = field(default_factory=dict)
    reading: str = ""
    cells: Mapping[str, Sequence[str]] = field(default_factory=dict)
    people_words: Sequence[str] = ()
    has_gaps: bool = False

    @classmethod
    def of_file(
        cls, path: Path, look: bool = True, form: Form | None = None, sheet: str = "", header: bool = True
    ) -> SchemaProposal:
        """Propose a schema for a file or folder of rows.

        look: whether cells are looked at for how they are written (marks, patterns of dates, words).
        form: of a text file, where a person said it; sheet: of a workbook; header: whether the first line of a text
        file names its columns: else they are numbered, for a person to name them in the draft.
        Raises DataError where the first line of a .csv holds what no column is called, so that it may be a row: nothing
        of it is repeated.
        """
        path, named = split_sheet(path)
        form = Form(sheet=sheet or named) if sheet or named else form
        try:
            if form is None and look and header and (first := read_first_rows(path, {})):
                form = first.form
            form = _name_columns(path, form, header, look)
            form, seen, description, cells, has_gaps = (
                _look_at(path, form) if look else (form or PLAIN, {}, "", {}, False)
            )
            types = column_types(path, form)
        except DataError as error:
            if look or not isinstance(error.__context__, UnicodeError):
                raise
            remedy = f"`dpserve schema draft {path.name} --data` proposes the encoding"
            raise DataError(f"data={path.name}: its first line is not UTF-8; {remedy}") from None
        if form_ending(path) in TEXT:
            _require_header(path, types, seen)
            if not look and not can_decode(path, "utf-8"):
                description = "The file is not UTF-8: with --data its encoding is proposed, too."
        proposal = cls.of_types(types, seen, form)
        if look and proposal.people:
            candidates = find_candidates(path, form, proposal.people)
            ranked = tuple(dict.fromkeys((*candidates.columns, *proposal.people)))
            proposal = replace(proposal, people=ranked, people_words=candidates.words)
        return replace(proposal, reading=description, cells=cells, has_gaps=has_gaps)

    @classmethod
    def of_types(
        cls, types: Mapping[str, pa.DataType | None], seen: Mapping[str, ColumnForm] | None = None, form: Form = PLAIN
    ) -> SchemaProposal:
        """Propose a schema by names and types (None: not known), and by how cells that were `seen` are written."""
        seen = seen or {}
        reasons = {name: reason_to_ignore(name, kind, seen.get(name)) for name, kind in types.items()}
        drafts = {name: _declare(name, kind, seen.get(name)) for name, kind in types.items() if not reasons[name]}
        people = [name for name in types if _may_name(name, seen.get(name))]
        texts = [column for column in seen.values() if column.kind in (TEXTS, "boolean")]
        trim = {"trim": True} if any(2 * column.padded > column.cells for column in texts) else {}
        usual = {key: getattr(PLAIN, key) for key in ("delimiter", "encoding", "sheet", "columns", "skip", "skip_rows")}
        return cls(
            {name: declaration for name, (declaration, _) in drafts.items()},
            {name: reason for name, reason in reasons.items() if reason},
            tuple(sorted(people, key=names_people, reverse=True)),
            {key: value for key in usual if (value := getattr(form, key)) != usual[key]} | trim,
            {name: remark for name, (_, remark) in drafts.items() if remark},
            {
                name: asked
                for name in drafts
                if name in seen
                and (asked := seen[name].question)
                and (asked.choices or not (is_id(name) or names_people(name)))
            },
        )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SchemaProposal:
        """Read what `to_json` wrote."""
        parts = body["features"], body["ignore"], tuple(body["people"]), body.get("format", {})
        more = {name: body[name] for name in ("cells", "people_words") if name in body}
        asked = {name: Question.from_json(each) for name, each in body.get("questions", {}).items()}
        return cls(*parts, questions=asked, **more)

    def to_json(self) -> dict[str, Any]:
        """Return the proposal without its remarks, for a draft's file."""
        return {
            "features": dict(self.features), "ignore": dict(self.ignore), "people": list(self.people),
            "format": dict(self.format), "questions": {name: asdict(each) for name, each in self.questions.items()},
            "cells": {name: list(cells) for name, cells in self.cells.items()},
            "people_words": list(self.people_words),
        }  # fmt: skip

    def to_yaml(self, name: str, looked: bool) -> str:
        """Return a schema file that is refused until a person has filled in what is public knowledge.

        name: of the file of rows. looked: whether cells were looked at.
        """
        asked = {"asked": f", missing: {FILL_IN}", "or_else": "; else refuse"} if self.has_gaps else GAPLESS
        lines = [HEAD.format(name=_quote(name)[1:-1], seen=SEEN if looked else UNSEEN, **asked).rstrip("\n")]
        for column, declaration in self.features.items():
            remark = f" # {self.remarks[column]}" if column in self.remarks else ""
            lines.append(f"  {_quote(column)}: {_flow(declaration)}{remark}")
        if self.ignore:
            lines.append("ignore: # proposed by names and types; a column that models read belongs under features")
            lines += (f"  - {_quote(column)} # {reason}" for column, reason in self.ignore.items())
        if self.people:
            lines.append(f"# (--unit {_quote(self.people[0])[1:-1]}, when it is registered, if that names the person)")
        if self.format:
            lines.append(f"format: {json.dumps(self.format, ensure_ascii=False)}")
        return "\n".join([*lines, "missing: own-bin", ""])

    def groups(self) -> list[ColumnGroup]:
        """Return all columns in groups that one answer is for: features first, then what is ignored. Who one person is
        is no proposal: it holds permanently, and is asked.
        """
        ignored = (ColumnGroup((name,), "", "", "ignore", "", "") for name in self.ignore)
        groups = [*group_columns(self.features, self.questions), *ignored]
        return [replace(group, cells=tuple(self.cells.get(group.columns[0], ()))) for group in groups]

    def to_schema(self, answers: Iterable[ColumnAnswer], records: int) -> dict[str, Any]:
        """Return the body of the schema that a person's answers make of the proposal.

        A column that no answer is about stays as proposed. records: about how many rows, as everybody may know.
        Raises InputError that names what must still be said.
        """
        answers = list(answers)
        unit_of(answers)
        by_column = {name: answer for answer in answers for name in answer.columns}
        if unknown := sorted(by_column.keys() - self.features.keys() - self.ignore.keys()):
            raise InputError(f"columns: the file has none called {unknown[0][:80]!r}")
        body: dict[str, Any] = {"targets": {}, "records": records, "features": {}, "groups": {}, "ignore": []}
        for name in (*self.features, *self.ignore):
            proposed = self.features.get(name)
            answer = by_column.get(name) or ColumnAnswer((name,), "ignore" if proposed is None else "feature")
            if answer.role not in ROLES:
                raise InputError(f"{name}: role={answer.role[:40]!r}: must be one of {', '.join(ROLES)}")
            if answer.role in ("unit", "ignore"):
                body["ignore"].append(name)
            elif answer.role == "target":
                body["targets"][name] = target_of_answer(name, answer, proposed or {})
            else:
                feature = feature_of_answer(name, answer, proposed or {"type": FILL_IN, "range": FILL_IN})
                if "feature" in answer.role:
                    body["features"][name] = feature
                if "group" in answer.role:
                    body["groups"][name] = {} if "feature" in answer.role else feature
        if not body["targets"]:
            raise InputError("target: no column is to be predicted; choose the role target for at least one")
        if not body["features"]:
            raise InputError("features: no column is read by models; choose the role feature for at least one")
        if self.format:
            body["format"] = dict(self.format)
        return {key: value for key, value in body.items() if value or key not in ("groups", "ignore")}


def read_first_rows(path: Path, said: Mapping[str, Any]) -> FirstRows | None:
    """Return the first rows of a file, which is written as far as it was `said`; None of one that names its columns
    itself. DataError.
    """
    with reading(path):
        return look_at_first_rows(path, said)


def text_of_answers(proposal: Mapping[str, Any], answers: Iterable[Mapping[str, Any]], records: int) -> str:
    """Return the schema, as YAML, that answers make of a proposal in JSON; `checked_text`. InputError."""
    said = [ColumnAnswer(**{**answer, "columns": tuple(map(str, answer["columns"]))}) for answer in answers]
    schema = SchemaProposal.from_json(proposal).to_schema(said, records)
    return checked_text(yaml.safe_dump(schema, sort_keys=False, allow_unicode=True, width=120))


def checked_text(text: str) -> str:
    """Return the text of a schema that can be registered. SchemaError."""
    parse_schema(text.encode())
    return text


def reason_to_ignore(name: str, kind: pa.DataType | None, seen: ColumnForm | None = None) -> str:
    """Return why a column of this name, type and look is no feature as it stands; empty where it may be one."""
    words = words_of(name) or [""]
    if has_no_name(name):
        return "without a name"
    if not is_column_name(name):
        return "its name is none that a schema takes"
    can_be_ids = _can_be_ids(seen) and not (kind and (pa.types.is_boolean(kind) or pa.types.is_temporal(kind)))
    if can_be_ids and (names_people(name) or words[-1] in ID_WORDS or (IDS.issuperset(words) and words != ["code"])):
        return "an id"
    if kind is not None and any(holds(kind.value_type if pa.types.is_dictionary(kind) else kind) for holds in UNREAD):
        return "lists, records, bytes or durations: a column is read that holds texts, numbers, dates or truth values"
    if seen is None and ((kind is not None and pa.types.is_temporal(kind)) or TIME_WORDS.intersection(words)):
        return "a date or a time: as a feature, {type: date, range: [first, last]}, or datetime, or time"
    if seen is not None and seen.kind == EMPTY:
        return "nothing stands in it"
    texts = seen if seen is not None and seen.kind == TEXTS else None
    if TEXT_WORDS.intersection(words) or (texts is not None and 2 * texts.long > texts.cells):
        return "free text"
    if texts is None:
        return ""
    # names of people, numbers of cases: more different ones than anybody lists
    many = texts.distinct > MOST_LISTED or (texts.cells >= FEW_ROWS and 2 * texts.distinct > texts.cells)
    return "texts that hardly repeat" if many else ""


def _can_be_ids(seen: ColumnForm | None) -> bool:
    """Return whether cells may be ids, which no words for yes and no, no days and no fractions are."""
    return seen is None or seen.kind in (EMPTY, TEXTS, TYPED) or (seen.kind == "numeric" and seen.is_whole)


def _may_name(name: str, seen: ColumnForm | None) -> bool:
    """Return whether a column may name persons, by its name, or by how its texts repeat."""
    if names_people(name):
        return _can_be_ids(seen)
    return (
        seen is not None and seen.kind == TEXTS and 2 * seen.long <= seen.cells and repeats(seen.distinct, seen.cells)
    )


def _require_header(path: Path, names: Iterable[str], seen: Mapping[str, ColumnForm]) -> None:
    """Raise DataError where the first line looks like a row: more of its cells are values, as the law of columns reads
    them, than are words above columns of values; years that follow each other are names. Nothing of it is repeated.
    """
    columns = [*names]
    kinds = kinds_of([called_again(name) for name in columns])
    odd = [place for place, kind in enumerate(kinds, 1) if kind in VALUES]
    empty = [kind == Kind.MISSING_WORD for kind in kinds]
    words = [name for at, name in enumerate(columns) if at + 1 not in odd and not empty[at] and not has_no_name(name)]
    above = sum(name in seen and seen[name].kind not in (EMPTY, TEXTS) for name in words)
    if len(odd) > 1 and f" {' '.join(columns[place - 1] for place in odd)} " in YEARS:
        odd = []
    if not above:
        at_an_end = {1, len(columns)}  # an index that pandas wrote, and a comma at the end of each line
        odd += [
            place
            for place, (name, is_empty) in enumerate(zip(columns, empty, strict=True), 1)
            if is_empty or (has_no_name(name) and (place not in at_an_end or len(columns) < 3))
        ]
    if len(odd) > above:
        raise DataError(
            f"data={path.name}: the first line must be a header with the columns' names, and what stands at "
            f"{sorted(odd)[:10]} (counted from 1) is a number, a date, or nothing; put a header before it, or, "
            "where there is none, let --no-header number the columns in the draft"
        )


def _name_columns(path: Path, form: Form | None, header: bool, look: bool) -> Form | None:
    """Return how a text file is written in which no line names each column once, as schemas take names: the columns are
    numbered, or a second `note` is `note_2`. None: as it was said.
    """
    with reading(path):
        first = open_table(path).parts[0]
        if not first.is_text:
            if not header:
                raise InputError(f"data={path.name}: is no text file; what its columns are called stands in it")
            return form
        said = form or (form_of(first.path) if look else PLAIN)
        first = replace(first, form=said)
        own = [*first.types()]
        if not header:
            return replace(said, columns=tuple(f"column_{at}" for at in range(1, len(own) + 1)))
        names = dict[str, None]()
        for name in own:
            plain = called_again(name) if called_again(name) in own else name
            plain = plain if is_column_name(plain) else plain.lstrip("/ ")[: LONGEST - 8] or "column"
            at = next(at for at in count(1) if (plain if at == 1 else f"{plain}_{at}") not in names)
            names[plain if at == 1 else f"{plain}_{at}"] = None
        return form if [*names] == own else replace(said, columns=tuple(names), skip=first.header_lines)


def _look_at(path: Path, form: Form | None) -> tuple[Form, dict[str, ColumnForm], str, dict[str, list[str]], bool]:
    """Return how the file and the cells of its first rows, and of some after them, are written, `describe_readings`,
    of each column the first cells that are there, and whether any is missing.
    """
    with reading(path):
        texts = [part.path for part in open_table(path).parts[:MAX_PARTS] if part.is_text]
        telling = next((text for text in texts if not can_decode(text, "utf-8")), texts[0] if texts else None)
        form = form or (PLAIN if telling is None else form_of(telling))
        description = "" if telling is None else describe_readings(list_readings(telling))
        table = open_table(path, form)
        names, columns, has_gaps = [*table.types()], dict[str, Cells](), False
        first: dict[str, list[str]] = {name: [] for name in names}
        for batch in _some_rows(table.batches(names, dict.fromkeys(names, pa.string()))):
            for name, cells in zip(names, batch.columns, strict=True):
                if len(first[name]) < FIRST_CELLS:
                    first[name] = [*first[name], *islice(_present_cells(cells), FIRST_CELLS - len(first[name]))]
                if is_text(cells.type):
                    columns.setdefault(name, Cells()).add(cells)
                has_gaps = has_gaps or bool(cells.null_count)
        has_gaps = has_gaps or any(pc.any(missing_texts(each.distinct()[0])).as_py() for each in columns.values())
        seen = dict.fromkeys(names, ColumnForm(TYPED)) | find_forms(columns)
    return form, seen, description, first, has_gaps


def _some_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the first MAX_ROWS rows, and a SHARE of MORE_ROWS after them, scattered; small batches as one."""
    rows = size = 0
    waiting = list[pa.RecordBatch]()
    for batch in batches:
        part, places = batch, np.arange(rows, rows + len(batch))
        if rows + len(batch) > MAX_ROWS:
            part = batch.take(pa.array(np.flatnonzero((places < MAX_ROWS) | scattered(places, SHARE))))
        if waiting and (part.schema != waiting[0].schema or size > BYTES_AT_ONCE):
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
        waiting, size, rows = [*waiting, part], size + part.nbytes, rows + len(batch)
        if rows >= MAX_ROWS + MORE_ROWS:
            break
    if waiting:
        yield pa.concat_batches(waiting)


def _present_cells(column: pa.Array) -> Iterator[str]:
    """Yield the cells that are there, cut to what a line shows."""
    for start in range(0, len(column), FIRST_CELLS):
        for cell in column.slice(start, FIRST_CELLS):
            shown = None
            with suppress(ValueError):  # of nanoseconds, which Python has not
                shown = cell.as_py()
            if text := " ".join(str("" if shown is None else shown).split()):
                yield text if len(text) <= CELL_LENGTH else f"{text[: CELL_LENGTH - 2]}.."


def _declare(name: str, kind: pa.DataType | None, seen: ColumnForm | None) -> tuple[Mapping[str, Any], str]:
    """Return the declaration of a feature with what a person must say left open, and a remark for that person."""
    if seen is not None and seen.kind != TYPED:
        declaration, remark = _declare_by_cells(seen)
        is_measure = seen.kind == "numeric" and (names_people(name) or is_id(name))  # its cells are no ids
        return {**declaration, **({"measure": True} if is_measure else {})}, remark
    if kind is None:
        return {"type": FILL_IN}, "numeric (with range), categorical (with values) or boolean: a .csv does not say"
    if pa.types.is_temporal(kind):
        word = "time" if pa.types.is_time(kind) else "date" if pa.types.is_date(kind) else "datetime"
        return {"type": word, "range": [FILL_IN, FILL_IN]}, ""
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}, ""
    if pa.types.is_integer(kind):
        return NUMERIC, OR_CODES
    numeric = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return (NUMERIC if numeric else CATEGORICAL), ""


PUBLIC: Mapping[str, Mapping[str, Any]] = {
    "numeric": NUMERIC, "boolean": {"type": "boolean"}, "time": {"type": "time", "range": ["00:00", "23:59:59"]},
    **{kind: {"type": kind, "range": [FILL_IN, FILL_IN]} for kind in ("date", "datetime")},
}  # fmt: skip


def _declare_by_cells(seen: ColumnForm) -> tuple[Mapping[str, Any], str]:
    """Leave open what the cells do not say, with the readings that there are as a remark."""
    declaration, remarks = {**PUBLIC.get(seen.kind, CATEGORICAL), **seen.declared}, list[str]()
    asked, days = seen.question, seen.declared.get("written", ())
    if asked is not None and asked.choices and seen.kind == "numeric":
        declaration = {**{key: value for key, value in declaration.items() if key != "thousands"}, "decimal": FILL_IN}
        ways = (", ".join(f"{key}: {_quote(mark)}" for key, mark in each.declared.items()) for each in asked.readings)
        remarks = [f"{' or '.join(asked.choices)}? Write {' or '.join(ways)}"]
    elif asked is not None and asked.choices:
        declaration["written"], days = FILL_IN, asked.choices
        remarks = [f"which: {' or '.join(days)}?"]
    elif asked is not None and asked.readings[0].choice in KINDS:
        remarks = [f"or {' or '.join(_flow(each.declared) for each in asked.readings[1:])}"]
    if any(map(has_short_year, days)):
        declaration["first_year"] = FILL_IN
        remarks.append("first_year: with 1950, the years 50 to 99 are 1950 to 1999, and 00 to 49 are 2000 to 2049")
    return declaration, "; ".join(remarks) or (OR_CODES if seen.is_whole else "")


def _flow(value: object) -> str:
    """Spell a declaration on one line of YAML."""
    if isinstance(value, Mapping):
        words = (f"{key}: {part if key == 'type' else _flow(part)}" for key, part in value.items())
        return f"{{{', '.join(words)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return FILL_IN if value == FILL_IN else _quote(value) if isinstance(value, str) else json.dumps(value)


def _quote(text: str) -> str:
    """Spell a text in YAML, in the letters that stand in it; what cannot be seen, by its number."""
    letters = (letter if letter.isprintable() else f"\\U{ord(letter):08X}" for letter in text)
    return '"' + "".join({'"': '\\"', "\\": "\\\\"}.get(letter, letter) for letter in letters) + '"'
