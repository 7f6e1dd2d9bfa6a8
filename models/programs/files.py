"""A released model as a file of another language, which asks for nothing else: `program_file` writes it.

It answers what the exported graph answers: the same class for every record, and the same number of a number, bit for
bit; a probability within `NEAR`, which is float32 there and float64 here. Where a score may be greater than what
float32 holds exactly, SQL does not round it as the graph does: a number is then within 1e-6 of its size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from models.features.features import BooleanFeature, CategoricalFeature, Feature
from models.onnx.export import NUMBER, Exportable
from models.programs.answer import Program, program_of
from models.programs.languages import DOUBLE, C, Python, Sql

NEAR = 1e-6  # how far a probability may be from the graph's

KINDS = {
    "numeric": "a number",
    "boolean": "a truth",
    "categorical": "a text",
    "date": "days since 1970-01-01",
    "datetime": "seconds since 1970-01-01",
    "time": "seconds since midnight",
}

PYTHON = '''{head}
from datetime import date, datetime, time, timedelta, timezone
from math import exp, nan
from struct import pack, unpack


def predict(record):
    """Return {returns}. A record is a dict of what is listed here; None is missing."""
{about}
{lines}
    return {answer}


def _number(value):
    if isinstance(value, (str, bytes)):
        raise TypeError("a number, a truth or None, not " + repr(value)[:80])
    return nan if value is None else float(value)


def _text(value):
    if value is not None and not isinstance(value, str):
        raise TypeError("a text or None, not " + repr(value)[:80])
    return value or ""


def _date(value):
    """Days since 1970-01-01, of a date, its ISO text, or the number itself."""
    value = (date.fromisoformat(value) if value else None) if isinstance(value, str) else value
    return float(value.toordinal() - 719163) if isinstance(value, date) else _number(value)


def _datetime(value):
    """Seconds since 1970-01-01, of a moment (in UTC where it names its zone), its ISO text, or the number itself."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value.removesuffix("Z")) if value else None
    if not isinstance(value, datetime):
        return _number(value)
    moment = value.replace(tzinfo=timezone.utc) - (value.utcoffset() or timedelta())
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()


def _time(value):
    """Seconds since midnight, of a time, its ISO text, or the number itself."""
    value = (time.fromisoformat(value) if value else None) if isinstance(value, str) else value
    if not isinstance(value, time):
        return _number(value)
    return value.hour * 3600.0 + value.minute * 60.0 + value.second + value.microsecond / 1e6


def _float32(value):
    return unpack("f", pack("f", value))[0]
'''

C_FILE = """{head}
// cc -std=c99 -O2 -shared -fPIC -o {name}.so {name}.c -lm
#include <math.h>
#include <string.h>

// What is not known is NAN, or NULL. A text is UTF-8, and ends at its first 0.
struct {name}_record {{
{fields}
}};

struct {name}_answer {{
{outputs}
}};

void {name}_predict(const struct {name}_record *record, struct {name}_answer *answer)
{{
{lines}
{answer}
}}
"""

SQL_FILE = """{head}
-- Columns that are read:
{about}
WITH model_rows AS (SELECT * FROM {table}),
{layers}
SELECT {answer}
FROM {last};
"""


class Writer(Protocol):
    """Writes a file: of a model, its graph's bytes, lines for its head, a name, and columns to keep (SQL alone)."""

    def __call__(
        self, ensemble: Exportable, model_bytes: bytes, head: Sequence[str], name: str, keep: Sequence[str]
    ) -> str:
        """Return the text of the file."""


def program_file(
    language: str, ensemble: Exportable, model_bytes: bytes, head: Sequence[str], name: str, keep: Sequence[str] = ()
) -> bytes:
    """Return a file of one of `WRITERS`, the same bytes for the same model. InputError where the language cannot hold
    a text of it, ModelInvalid where its graph holds what is unknown here.
    """
    return WRITERS[language](ensemble, model_bytes, head, name, keep).encode()


def _python(ensemble: Exportable, model_bytes: bytes, head: Sequence[str], name: str, keep: Sequence[str]) -> str:
    readers = {"categorical": "_text", "date": "_date", "datetime": "_datetime", "time": "_time"}
    inputs = {f.name: f"{readers.get(f.kind, '_number')}(record[{f.name!a}])" for f in ensemble.features}
    program = program_of(ensemble, model_bytes, Python(), inputs)
    label, *more = program.answers.values()
    pairs = zip(map(Python().label, ensemble.classes), more[0] if more else (), strict=False)
    shares = ", ".join(f"{label}: {share}" for label, share in pairs)
    return PYTHON.format(
        head="".join(f"# {line}\n" for line in head),
        about="\n".join(f"    # {each.name!a}: {KINDS[each.kind]}" for each in ensemble.features),
        returns="the class, and the probability of each class" if more else "the number",
        lines="\n".join(f"    {line.name} = {line.expression}" for line in program.lines),
        answer=f"{label[0]}, {{{shares}}}" if more else label[0],
    )


def _c(ensemble: Exportable, model_bytes: bytes, head: Sequence[str], name: str, keep: Sequence[str]) -> str:
    fields = {f.name: f"f{at}_{_identifier(f.name)}" for at, f in enumerate(ensemble.features)}
    inputs = {
        f.name: f'record->{fields[f.name]} ? record->{fields[f.name]} : ""'
        if isinstance(f, CategoricalFeature)
        else f"record->{fields[f.name]}"
        for f in ensemble.features
    }
    program = program_of(ensemble, model_bytes, C(), inputs)
    types = {f.name: "const char *" if isinstance(f, CategoricalFeature) else "double " for f in ensemble.features}
    kinds = [*(types[each] for each in program.read), *["double "] * len(program.lines)]
    answers = program.answers
    if NUMBER[0] in answers:
        outputs, answer = ["    double value;"], [f"    answer->value = {answers[NUMBER[0]][0]};"]
    else:
        label, shares = answers.values()
        kind = "const char *" if isinstance(ensemble.classes[0], str) else "long long "
        classes = ", ".join(map(C().label, ensemble.classes))
        outputs = [f"    {kind}label;", f"    double probabilities[{len(shares)}]; // of {classes}"]
        answer = [f"    answer->label = {label[0]};"]
        answer += [f"    answer->probabilities[{at}] = {share};" for at, share in enumerate(shares)]
    return C_FILE.format(
        head="".join(f"// {line}\n" for line in head),
        name=_identifier(name),
        fields="\n".join(
            f"    {types[f.name]}{fields[f.name]}; // {C().text(f.name)}: {KINDS[f.kind]}" for f in ensemble.features
        ),
        outputs="\n".join(outputs),
        lines="\n".join(
            f"    {kind}{line.name} = {line.expression};" for kind, line in zip(kinds, program.lines, strict=False)
        ),
        answer="\n".join(answer),
    )


def _identifier(name: str) -> str:
    """Return what C takes for a name; a digit does not begin it."""
    return re.sub(r"\A(?=\d)", "m_", re.sub(r"[^A-Za-z0-9_]", "_", name))


def _sql(ensemble: Exportable, model_bytes: bytes, head: Sequence[str], name: str, keep: Sequence[str]) -> str:
    sql = Sql()
    program = program_of(ensemble, model_bytes, sql, {f.name: _column(f) for f in ensemble.features})
    first, *more = program.answers.values()
    titles = ["label" if more else NUMBER[0], *(f"p_{each}" for each in (ensemble.classes if more else ()))]
    kept = [sql.name(each) for each in keep]
    answers = [f"{each} AS {sql.name(title)}" for each, title in zip((*first, *sum(more, ())), titles, strict=True)]
    kinds = {feature.name: KINDS[feature.kind] for feature in ensemble.features}
    texts = {feature.name for feature in ensemble.features if isinstance(feature, CategoricalFeature)}
    layers, last = _layers(program, [name in texts for name in program.read])
    return SQL_FILE.format(
        head="".join(f"-- {line}\n" for line in head),
        about="\n".join(f"--   {sql.name(each)}: {kinds[each]}" for each in program.read),
        table=sql.name(name),
        layers=",\n".join(layers),
        answer=",\n  ".join([*kept, *answers]),
        last=last,
    )


def _column(feature: Feature) -> str:
    """Write what a row has for a feature. Of all numbers NaN alone is above 0 together with its negative, in databases
    that have it. What COALESCE gives is no column, and is compared by its characters, whatever its column says.
    """
    column = Sql().name(feature.name)
    if isinstance(feature, CategoricalFeature):
        return f"COALESCE(CAST({column} AS TEXT), '')"
    if isinstance(feature, BooleanFeature):
        return f"CASE WHEN {column} THEN 1 WHEN NOT {column} THEN 0 END"
    number = f"CAST({column} AS {DOUBLE})"
    return f"CASE WHEN {number} > 0 AND -{number} > 0 THEN NULL ELSE {number} END"


def _layers(program: Program, are_texts: Sequence[bool]) -> tuple[list[str], str]:
    """Return queries, each of which computes the lines that need no more than those before it, and the name of the
    last. They are kept apart, for a database that joins them would compute a line anew wherever it is read. The first
    lines are the texts among what is read; every other is a float64, also where a database would count in decimals.
    """
    texts = {line.name for line, is_text in zip(program.lines, are_texts, strict=False) if is_text}
    depth: dict[str, int] = {}
    for line in program.lines:
        depth[line.name] = 1 + max((depth[each] for each in line.is_from), default=0)
    layers, before = [], "model_rows"
    for level in range(1, max(depth.values()) + 1):
        lines = [line for line in program.lines if depth[line.name] == level]
        typed = (each.expression if each.name in texts else f"CAST({each.expression} AS {DOUBLE})" for each in lines)
        columns = "".join(f",\n    {what} AS {line.name}" for what, line in zip(typed, lines, strict=True))
        layers.append(f"layer_{level} AS MATERIALIZED (\n  SELECT *{columns}\n  FROM {before})")
        before = f"layer_{level}"
    return layers, before


WRITERS: dict[str, Writer] = {"sql": _sql, "python": _python, "c": _c}
