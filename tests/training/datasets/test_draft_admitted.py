"""What a draft proposes is admitted by the check, whatever the file: random tables of all kinds of columns.
DRAFTED_TABLES=1000 drafts many.
"""

from __future__ import annotations

import csv
import os
import random
from datetime import date, timedelta

import pytest
import yaml

from accountant.errors import DataError
from models.features.column_forms import DATES
from models.features.date_patterns import write_day
from models.features.written import TRUE, Written
from training.datasets.drafts.columns import ColumnAnswer, ColumnGroup
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.rows.schema.schema import parse_schema
from training.rows.schema.schema_text import load_yaml
from training.rows.sources.cell_kinds import NO, UNITS, YES
from training.rows.tables.form_search import number_forms

TABLES = int(os.environ.get("DRAFTED_TABLES", "60"))
ROWS = 30
NAMES = ("2019", "2020", "", "", "note", "note", "a\nb", "zero\u200bwidth", "null", "true", "no", "<<", "~", "- x",
         "#", "Größe", "名前", "a,b", 'say "x"', "/path", "note (2)", "note_2", "=1+1", "column 3", "x" * 300,
         "member", "user id", "Kd.-Nr.", "date", "1e3", "?", "records")  # fmt: skip
MISSING = ("", "", "NA", "?", "-", "n/a", "null", "#N/A", "unbekannt")
PUBLIC = {
    "numeric": "-1000000000 .. 1000000000", "date": "0001-01-01 .. 9999-12-31", "time": "00:00 .. 23:59:59",
    "datetime": "0001-01-01T00:00:00 .. 9999-12-31T00:00:00",
}  # fmt: skip


def spell_number(draw: random.Random, form: Written) -> str:
    """Spell a number as a column of this form has it."""
    whole, fraction = str(draw.randrange(10 ** draw.randrange(1, 8))), "0512"[: draw.randrange(5)]
    if form.thousands and draw.random() < 0.8:
        whole = f"{int(whole):,}".replace(",", form.thousands)
    mark = draw.choice(".,") if form.decimal == "either" else form.decimal
    number = draw.choice(("", "", "-", "\u2212", "+")) + whole + (f"{mark}{fraction}" if fraction else "")
    return number + (draw.choice(["", " ", "\u00a0"]) + form.unit_mark if form.unit_mark else "")


def column(draw: random.Random) -> list[str]:
    """Draw the cells of a column of any kind."""
    kind = draw.choice(("numbers", "numbers", "whole", "days", "days", "moments", "clocks", "truths", "words", "ids",
                        "long", "nothing", "mixed", "zero or one"))  # fmt: skip
    day = lambda: date(1930, 1, 1) + timedelta(days=draw.randrange(36_000))  # noqa: E731
    form = draw.choice(number_forms(draw.choice(["", "", *sorted(UNITS)])))
    patterns = draw.choice(([draw.choice(DATES)], ["YYYY-MM-DD", "DD.MM.YYYY"]))
    words = draw.choice(([*TRUE], [draw.choice(sorted(YES)), draw.choice(sorted(NO))], ["Yes", "NO"]))
    spell = {
        "numbers": lambda: spell_number(draw, form), "whole": lambda: str(draw.randrange(1000)),
        "days": lambda: write_day(draw.choice(patterns), *day().timetuple()[:3]),
        "moments": lambda: f"{write_day(patterns[0], *day().timetuple()[:3])} {draw.randrange(24):02}:30",
        "clocks": lambda: f"{draw.randrange(24)}:{draw.randrange(60):02}", "truths": lambda: draw.choice(words),
        "words": lambda: draw.choice(["north", "south", " east", "1a", "10 km away", "2024", "5 kg"]),
        "ids": lambda: f"{draw.randrange(1 << 40):010x}", "long": lambda: "so it was, \n" * draw.randrange(1, 9),
        "nothing": lambda: "", "zero or one": lambda: draw.choice("01"),
        "mixed": lambda: draw.choice(["5", "2024-01-01", "x", "1,5", "ja", "99.999"]),
    }[kind]  # fmt: skip
    share = draw.choice((0, 0, 0.1, 0.5))
    return [draw.choice(MISSING) if draw.random() < share else spell() for _ in range(ROWS)]


def write(path, draw: random.Random) -> None:
    """Write a table: some columns of any kind and name, and one to be predicted."""
    columns = [column(draw) for _ in range(draw.randrange(2, 7))]
    names = [draw.choice((*NAMES, f"c{at}", f"c{at}", f"c{at}")) for at in range(len(columns))]
    rows = [[*names, "answer"], *([*cells, "uv"[at % 2]] for at, cells in enumerate(zip(*columns, strict=True)))]
    with path.open("w", encoding=draw.choice(("utf-8", "utf-8-sig")), newline="") as file:
        csv.writer(file, delimiter=draw.choice(",;\t|"), quoting=draw.choice((0, 1))).writerows(rows)


def answer(draw: random.Random, group: ColumnGroup) -> ColumnAnswer:
    """Say of columns what only a person can, any one of the readings that they are asked about."""
    if group.columns == ("answer",):
        return ColumnAnswer(group.columns, "target", "u, v")
    if group.role == "ignore":
        return ColumnAnswer(group.columns, "ignore")
    if group.kinds:
        kind = draw.choice([*group.kinds])
        public = group.kinds[kind] or PUBLIC.get(kind, "")  # of a day in digits a person says the range by either
        return ColumnAnswer(group.columns, "feature", public, "" if kind == group.type else kind)
    written = draw.choice(group.choices) if group.choices else ""
    year = "1930" if group.has_short_year(written) else ""
    public = PUBLIC.get(group.type, "north, south") if group.wants else ""
    return ColumnAnswer(group.columns, "feature", public, written=written, first_year=year, other="expected"
                        if group.type == "categorical" else "")  # fmt: skip


def check_drafts(folder, seeds) -> tuple[int, set[str]]:
    """Draft a made-up file for each seed, answer, and check: return how many drafts were written, and the types."""
    admitted, types = 0, set()
    for seed in seeds:
        draw, path = random.Random(seed), folder / "rows.csv"
        write(path, draw)
        try:
            proposal = SchemaProposal.of_file(path)
        except DataError as error:
            if "must be a header" not in error.message:
                raise
            continue
        groups = proposal.groups()
        if not proposal.features.keys() - {"answer"}:
            continue
        body = proposal.to_schema([answer(draw, group) for group in groups], ROWS)
        schema = parse_schema(yaml.safe_dump(body, allow_unicode=True).encode())
        assert check_file(schema, path).problems == [], (seed, body)
        drafted = load_yaml(proposal.to_yaml(path.name, looked=True))
        assert [*drafted["features"]] == [*proposal.features], seed
        assert [*drafted.get("ignore", [])] == [*proposal.ignore], seed
        admitted, types = admitted + 1, types | {group.type for group in groups}
    return admitted, types


@pytest.mark.slow
def test_what_a_draft_proposes_is_admitted_by_the_check(tmp_path):
    admitted, types = check_drafts(tmp_path, range(TABLES))
    assert admitted > 2 * TABLES // 3
    assert types >= {"numeric", "categorical", "boolean", "date", "datetime", "time"}
