"""Thousands of queries that nobody thought of: whatever passes moves the rows of nobody but the person who leaves."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections import Counter

import pytest

from dpserve_verify.errors import InputError
from training.rows.sources.selects import read_select

SEED, QUERIES, LEAST = 0, 5_000, 150  # that are made, and of them at least so many must pass and be answered
LEAVE = ("p2", "p5", "p17")
ROWS = [
    (f"p{person}", float(person * 7 % 23) + visit, random.Random(person + visit).choice(["no", "yes"]), person % 5)
    for person in range(30)
    for visit in range(1 + person % 3)
]
FUNCTIONS = """
abs lower upper length round coalesce trim substr replace max min sum avg count nullif ifnull hex sign greatest first
last any_value group_concat total random lag row_number rank typeof instr date strftime printf char unicode iif quote
changes json_array array_agg list mode median stddev arg_max string_agg count_if md5 nextval uuid now unnest concat
left right reverse floor ceil ln sqrt year month
""".split()  # noqa: SIM905 a list of words
UNITS = ["pid"] * 4 + ["v.pid", "*", "v.*", "lower(pid) as pid", "y as pid", "max(pid) as pid", "b || pid as pid", "a"]
TABLES = ["v"] * 8 + ["t as v", "t as v, t as u", "(select * from t) v", "t as v join t u using (pid)", "main.t as v"]
GROUPS = ["pid", "pid", "pid, y", "y", "1", "2", "lower(pid)", "c0", "v.pid", "pid, c0", "a, b"]
ENDS = [" limit 5", " order by a", " limit 3 offset 3", " order by 1 limit 3", " union select pid, a from t"]


class Maker:
    """Makes one query after the other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expression(self, depth: int = 0) -> str:
        if depth > 2 or self.random.random() < 0.35:
            return self.random.choice(["pid", "a", "y", "b", "a", "b", "1", "2.5", "'no'", "null", "rowid", "v.a"])
        one, two, three = (self.expression(depth + 1) for _ in range(3))
        sign = self.random.choice(["+", "-", "*", "/", "%", "||", "=", "<", "and", "or", "is", "like"])
        function = self.random.choice(FUNCTIONS)
        forms = [
            f"({one} {sign} {two})", f"{function}({one})", f"{function}({one}, {two})", f"{function}({one}, {two}, 1)",
            f"case when {one} then {two} else {three} end", f"cast({one} as {self.random.choice(['int', 'text'])})",
            f"{one} in ({two}, {three})", f"{one} in (select a from t)", f"{one} in t", f"(select {one} from t)",
            f"exists (select 1 from t where {one})", f"sum({one}) over (order by a)", f"count(distinct {one})",
            f"{one} between {two} and {three}", "count(*)", f"max({one}) filter (where {two})", f"not {one}",
            f"{one} is null", f"{one} collate nocase", f"max({one})", f"sum({one})", f"avg({one})",
        ]  # fmt: skip
        return self.random.choice(forms)

    def query(self) -> str:
        some = self.random.random
        items = [
            self.random.choice(UNITS),
            *(f"{self.expression()} as c{at}" for at in range(self.random.choice([1, 2]))),
        ]
        self.random.shuffle(items)
        first = self.random.choice(["", "", "", "", "all ", "distinct "])
        text = f"select {first}{', '.join(items)} from {self.random.choice(TABLES)}".replace("from v", "from t as v")
        text += f" where {self.expression()}" if some() < 0.4 else ""
        text += f" group by {self.random.choice([*GROUPS, self.expression()])}" if some() < 0.5 else ""
        text += f" having {self.expression()}" if some() < 0.2 else ""
        text += self.random.choice(ENDS) if some() < 0.1 else ""
        return f"with t as (select * from t limit 9) {text}" if some() < 0.03 else text


def database(rows) -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("create table t (pid text, a real, y text, b int)")
    made.executemany("insert into t values (?, ?, ?, ?)", rows)
    return made


@pytest.mark.slow
def test_what_passes_moves_the_rows_of_nobody_else():
    whole, less = database(ROWS), [database([row for row in ROWS if row[0] != who]) for who in LEAVE]
    make, answered = Maker(SEED), 0
    for _ in range(QUERIES):
        query = make.query()
        with contextlib.suppress(InputError, sqlite3.Error):
            if read_select(query, "sqlite", "pid").doubts:
                continue
            every, *others = (Counter(map(str, each.execute(query))) for each in (whole, *less))
            answered += 1
            for who, left in zip(LEAVE, others, strict=True):
                gone, come = sum((every - left).values()), sum((left - every).values())
                assert (come, gone <= 1 + int(who[1:]) % 3) == (0, True), f"{who} leaves: {query}"
    assert answered >= LEAST
