"""Any schema that can be read can be planned, exported, and filled with rows that fit it; or it is refused.

A few in every run; `ANY_SCHEMAS=5000` tries more.
"""

from __future__ import annotations

import json
import os
import tempfile
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from table_fuzzer import NAMES, WORDS

from accountant.errors import SchemaError
from accountant.home import Home
from accountant.ledger.families.records import NewPeople
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register
from training.datasets.file_check import check_file
from training.datasets.made_up import write_made_up
from training.planning.first_plan import check_first_job
from training.planning.plans import plan
from training.requests import JobRequest
from training.rows.schema.schema import parse_schema

FEW = 40
EXAMPLES = int(os.environ.get("ANY_SCHEMAS", FEW))
TOTAL = Budget.of(9, "1e-11")
seen = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])
ODD_NUMBERS = [0, -0.0, 1e-320, 1e-9, 1e300, -1e300, 2**53, 2**63, 10**30, 1.5, 100]
FORMATS = [
    {"delimiter": "semicolon", "decimal": ","},
    {"encoding": "utf-16"},
    {"thousands": "'"},
    {"missing_words": ["-"]},
    {"skip": 2},
    {"delimiter": "comma and blank"},
]
names = st.one_of(
    st.sampled_from([name for name in NAMES if name.strip()]),
    st.text(seen, min_size=1, max_size=6),
    st.sampled_from("abcdefgh"),
)
words = st.one_of(
    st.sampled_from(WORDS),
    st.text(seen, max_size=4),
    st.integers(-3, 40),
    st.sampled_from(["no", "yes", "3+", "other"]),
)
numbers = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6), st.sampled_from(ODD_NUMBERS))
ranges = st.one_of(st.just([0, 100]), st.lists(numbers, min_size=2, max_size=2, unique=True).map(sorted))
ascending = st.lists(numbers, min_size=1, max_size=5, unique=True).map(sorted)
bins = st.sampled_from([2, 3, 8, 32, 4096])
days = st.integers(0, 3_600_000).map(lambda days: (date(1, 1, 1) + timedelta(days % 3_652_058)).isoformat())
moments = st.tuples(days, st.sampled_from(["00:00:00", "23:59:59", "12:30"])).map("T".join)
clocks = st.sampled_from(["00:00", "06:30", "12:00:01", "23:59:59"])


def made_of(kind, **keys):
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=keys)


def calendar(kind, moment):
    several = st.lists(moment, min_size=2, max_size=4, unique=True).map(sorted)
    ends = st.one_of(several.map(lambda ends: {"range": ends[:2]}), several.map(lambda ends: {"edges": ends}))
    patterns = {} if kind == "time" else {"written": st.sampled_from([["DD.MM.YYYY"], ["YYYY-MM-DD", "DD-MON-YYYY"]])}
    return st.builds(lambda body, ends: body | ends, made_of(kind, bins=bins, **patterns), ends)


numeric = st.builds(
    lambda body, ends: body | ends,
    made_of("numeric", bins=bins, scale=st.sampled_from(["linear", "log"]), decimal=st.sampled_from([".", ","]),
            thousands=st.sampled_from(["", " ", "'", ","]), unit_mark=st.sampled_from(["", "%", "kg"]),
            missing_words=st.just(["?"]), missing_values=st.lists(numbers, max_size=2)),
    st.one_of(ranges.map(lambda ends: {"range": ends}), ascending.map(lambda edges: {"edges": edges})),
)  # fmt: skip
features = st.one_of(
    numeric, made_of("categorical", missing_words=st.just(["?"])).flatmap(
        lambda body: st.lists(words, min_size=1, max_size=5).map(lambda values: body | {"values": values})),
    made_of("boolean", true_words=st.sampled_from([["ja"], ["1"]]), false_words=st.just(["nein"])),
    calendar("date", days), calendar("datetime", moments), calendar("time", clocks),
)  # fmt: skip
classes = st.one_of(st.just(["no", "yes"]), st.just([0, 1]), st.lists(words, min_size=1, max_size=5))
MORE = {"missing": st.just("leave-out")}
questions = st.one_of(
    st.fixed_dictionaries({"classes": classes}, optional=MORE | {"prevalence": st.sampled_from([0.02, 0.5])}),
    st.fixed_dictionaries({"range": ranges}, optional=MORE | {"decimal": st.just(",")}),
)  # fmt: skip


@st.composite
def schemas(draw):
    """The body of a schema whose columns are not called alike, most of them sound."""
    listed = draw(st.lists(names, min_size=4, max_size=9, unique=True))
    first, second = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2]))
    asked = {name: draw(questions) for name in listed[first : first + second]}
    body = {
        "records": draw(st.sampled_from([1, 2, 30, 1000, 10**6, 2**32])),
        "features": {name: draw(features) for name in listed[:first]},
    }
    if len(asked) == 1:
        ((name, question),) = asked.items()
        body["target"] = {"name": name, **question}
    else:
        body["targets"] = asked
    if draw(st.integers(0, 3)) == 0:
        body["groups"] = (
            {draw(st.sampled_from(listed[:first])): {}} if draw(st.booleans()) else {listed[-1]: draw(features)}
        )
    if draw(st.integers(0, 3)) == 0:
        body["ignore"] = draw(st.lists(names, max_size=3))
    body |= draw(st.sampled_from([{}, {}, {}, *({"format": form} for form in FORMATS)]))
    return body


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("any") / "home")})


def learn(body, home):
    """What comes of a schema: refused when it is read, refused because nothing can be learnt, or each target planned,
    on registered rows that the schema itself makes up.
    """
    raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        schema = parse_schema(raw)
    except SchemaError:
        return "not read"
    try:
        check_first_job(schema, TOTAL)
    except InputError:
        return "not learnt"
    if any(column.name != column.name.strip() for column in (*schema.stored, *schema.targets)):
        return "not read from a .csv, whose names have no blanks about them"
    name = f"d{home.ledger.log.size()}"
    with tempfile.TemporaryDirectory() as folder:
        rows, file = Path(folder) / "rows.made-up.csv", Path(folder) / "schema.yaml"
        write_made_up(schema, 30, rows, home.ledger.log.size())
        file.write_bytes(raw)
        problems = check_file(schema, rows).problems  # of a name alone: the rows fit
        assert all("is called as ids are" in problem.found for problem in problems), problems
        rows = rows.rename(rows.with_name("rows.csv"))  # as if they were somebody's
        others = NewPeople("made up", "a test")
        try:
            register(home, name, rows, file, TOTAL, Relation.ADD_REMOVE, "record", new_people=others)
        except InputError:  # by its name a feature is an id; the same rows as before
            return "refused"
    assert not problems, "the check refuses what the registration takes"
    for target in schema.target_names:
        plan(home, JobRequest(name, epsilon="1", target=target))
    return "planned"


CODES = {"type": "categorical", "values": ["010"]}


@pytest.mark.slow
@example({"records": 30, "features": {"code": CODES}, "target": {"name": "y", "range": [0, 1]}})
@example({"records": 30, "features": {"code": CODES}, "target": {"name": "y", "range": [0, 1e-320]}})  # is refused
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize=EXAMPLES == FEW)
@given(schemas())
def test_any_schema_that_is_read_can_be_planned_or_is_refused(home, body):
    learn(body, home)
