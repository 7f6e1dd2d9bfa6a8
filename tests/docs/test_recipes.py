"""The recipes of docs/extending.md, each walked through with a toy in a copy of the house: what a step adds, and then
that all of the house knows it. ("Add a privacy event" has its walk in tests/accountant/privacy/test_new_event.py.)"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from accountant.store.engines import FORMS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("accountant", "models", "training", "local", "dpserve_cluster", "dpserve_platform", "serving", "dpserve")

LEARNER = '''"""A toy: trees whose splits are public; a leaf says for which class its noisy counts are."""

from __future__ import annotations

from typing import Any, ClassVar

from models.forms.trees import TreeEnsemble
from training.learners.base.private_learner import PrivateClassifier
from training.learners.boosting.tree_queries import public_cuts, split_tests
from training.learners.boosting.noisy_leaves import ClassWeights, check_two_classes, leaf_noise, norm_of, shares
from training.rows.statistics.tree_rows import Grown
from training.session.session import Public, Releaser


class Toy(PrivateClassifier):
    """Five trees of three tests on every path. Two classes."""

    name: ClassVar[str] = "toy"

    def check(self, public: Public) -> None:
        check_two_classes(self.name, public)

    def rounds_for(self, public: Public) -> int:
        return 5

    def learn(self, session: Releaser) -> TreeEnsemble:
        public, tests = session.public, split_tests(session.public.features)
        noise, grown = leaf_noise(public, float(session.unit)), []
        for tree in range(self.rounds_for(public)):
            cuts = public_cuts(tests, tree, 3)
            noisy: Any = session.release(ClassWeights(cuts, (), (1,), 1, norm_of(public)), noise)
            grown.append(Grown(cuts, tuple(round(100 * (share - 0.5)) for share in shares(noisy, 1, 1.0))))
        assert public.classes is not None
        trees = tuple(tree.tree for tree in grown)
        return TreeEnsemble(public.features, public.target, public.classes, trees, 0, 0.05)
'''

DOOR = '''"""A toy: how many letters a word has."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from serving.http.routes import Door
from serving.wire.errors import json_response


async def letters(request: Request) -> Response:
    """The word is the last part of the path."""
    return json_response({"letters": len(request.path_params["word"])})


GIVES = {"type": "object", "properties": {"letters": {"type": "integer"}}, "required": ["letters"]}
DOORS = (Door("GET", "/v1/letters/{word}", ("audit",), letters, "How many letters a word has", gives=GIVES),)
'''

REMARK = '''"""A toy: remarks in the ledger."""

from __future__ import annotations

from accountant.errors import InputError
from accountant.ledger.ledger import Ledger


def remark(ledger: Ledger, text: str, by: str) -> int:
    """Append a remark; its entry. InputError where it says nothing."""
    if not text.strip():
        raise InputError("text: must say something")
    with ledger.log.writing() as writer:
        return writer.append("remark", text=text, by=by)
'''
REMARK_FORM = """class Remark(EntryForm):
    \"\"\"A toy.\"\"\"

    generation = 46

    type: Literal["remark"]
    text: str
    by: Text

    def judge(self, replay: Replay, seq: int) -> None:
        \"\"\"Judge that it says something.\"\"\"
        require(bool(self.text.strip()), "remark: must say something")


class KeyAdded("""
WORDS = '    "remark": ("run", "remark", lambda value: f"{value[\'by\']}: {value[\'text\']}"),\n    "genesis": ('

COUNT_KIND = """@dataclass(frozen=True)
class Count(JobKind):
    \"\"\"A toy: it counts the rows of a dataset by one column.\"\"\"

    count: Literal[True] = True

    word, does, ends = "count", "counts a dataset", "counted"
    binds = ("dataset",)
    names_model = False


TRAINING = Training()
"""
COUNTED_FORM = """class Counted(StatementForm):
    \"\"\"A toy.\"\"\"

    type: Literal["counted"]
    dataset: Name

    def judge(self, replay: Replay, seq: int) -> None:
        \"\"\"Judge that it ends a count.\"\"\"
        self.require_job(replay, JobKind.COUNT).issued = seq


class Profiled("""
COUNT_STATEMENT = (
    '"""A toy: how many rows there are by one column, in the form of a profile."""'
    + """

from __future__ import annotations

from typing import Literal

from accountant.certificates.profile import ProfileKind, ProfileStatement
from dpserve_verify.certificates import stated
from dpserve_verify.formats.forms import form_field


class CountStatement(ProfileStatement):
    \"\"\"A profile in all but its type.\"\"\"

    predicate_type: Literal["https://dpserve/dataset-count/v1"] = form_field(key="predicateType")


class CountKind(ProfileKind):
    \"\"\"Rows by one column.\"\"\"

    rule, form, folder = stated.COUNT, CountStatement, "counts"


COUNT = CountKind()
"""
)
COUNT_STEPS = (
    '"""A toy: a job that counts rows by one column."""'
    + """

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from accountant.certificates.count import COUNT
from accountant.home import Home
from accountant.ledger.families.job_kinds import Count
from training.kinds.table_steps import ProfileSteps
from training.measuring.profile.profile import PlannedProfile


@dataclass(frozen=True)
class AskedCount:
    \"\"\"Which column, of which dataset, at what price.\"\"\"

    dataset: str
    epsilon: str
    column: str


class CountSteps(ProfileSteps):
    \"\"\"Counted as a profile is, of one column alone.\"\"\"

    asks = AskedCount
    kind = COUNT

    @classmethod
    def plan(cls, home: Home, asked: Any, by: str | None = None) -> PlannedProfile:
        found = super().plan(home, ProfileSteps.asks(asked.dataset, asked.epsilon, columns=(asked.column,)), by)
        return replace(found, request=replace(found.request, kind=Count()), known=None)

    def result(self) -> dict[str, Any]:
        (column,) = self.kind.open(self.home, self.seq)[2].form.columns
        return {"count": column.counts}
"""
)

# Recipe -> step -> its file, and what stands there before and after ("" before: the file is new).
WALKS = {
    "learner": {
        1: ("training/learners/toy.py", ("", LEARNER)),
        2: (
            "training/learners/__init__.py",
            ("MODULES = {\n", 'MODULES = {\n    "Toy": "training.learners.toy",\n'),
            ("LEARNERS = Learners(\n    {\n", 'LEARNERS = Learners(\n    {\n        "toy": "Toy",\n'),
        ),
    },
    "REST door": {
        1: ("serving/rest/letters.py", ("", DOOR)),
        2: (
            "serving/app.py",
            ("    *operations.DOORS,\n", "    *operations.DOORS,\n    *letters.DOORS,\n"),
            ("    ledger,\n    measurements,\n", "    ledger,\n    letters,\n    measurements,\n"),
        ),
    },
    "kind of entry": {
        1: ("accountant/ledger/remarks.py", ("", REMARK)),
        2: ("dpserve_verify/entries/keys.py", ("class KeyAdded(", REMARK_FORM)),
        3: ("serving/pages/parts/entry_text.py", ('    "genesis": (', WORDS)),
    },
    "kind of job": {
        1: (
            "accountant/ledger/families/job_kinds.py",
            ("TRAINING = Training()\n", COUNT_KIND),
            ('    "profile": Profile,\n', '    "profile": Profile,\n    "count": Count,\n'),
        ),
        2: (
            "dpserve_verify/entries/job_kinds.py",
            (
                '    PROFILE = "profiles a dataset"\n',
                '    PROFILE = "profiles a dataset"\n    COUNT = "counts a dataset"\n',
            ),
            ('"profile", "contributes")  # of', '"profile", "contributes", "count")  # of'),
            ("{JobKind.PROFILE, ", "{JobKind.PROFILE, JobKind.COUNT, "),
            (
                '        case {"evaluates": _}:\n',
                '        case {"count": _}:\n            return _of_dataset(value, "count", JobKind.COUNT)\n'
                '        case {"evaluates": _}:\n',
            ),
        ),
        3: (
            "dpserve_verify/entries/jobs.py",
            ("    profile: Mark |", "    count: Mark | None = form_field(absent=True)\n    profile: Mark |"),
        ),
        4: (
            "dpserve_verify/certificates/stated.py",
            ("RULES = {", 'COUNT = Rule("count", "count", "https://dpserve/dataset-count/v1", "counted")\nRULES = {'),
            ("in (PROFILE, ANSWER, WORTH, ATTACK)", "in (PROFILE, ANSWER, WORTH, ATTACK, COUNT)"),
        ),
        5: ("accountant/certificates/count.py", ("", COUNT_STATEMENT)),
        6: ("training/kinds/count_steps.py", ("", COUNT_STEPS)),
        7: (
            "training/kinds/registry.py",
            ("    Profile: ProfileSteps,\n", "    Profile: ProfileSteps,\n    Count: CountSteps,\n"),
            ("import Evaluation, JobKind", "import Count, Evaluation, JobKind"),
            (
                "from training.kinds.job_steps",
                "from training.kinds.count_steps import CountSteps\nfrom training.kinds.job_steps",
            ),
        ),
        8: (
            "serving/pages/parts/entry_text.py",
            (
                "        case Profile():\n",
                '        case Count():\n            request = f"how many rows {rows} has by one column: {claim}."\n'
                "        case Profile():\n",
            ),
            ("import Contribution, Evaluation, Profile", "import Contribution, Count, Evaluation, Profile"),
        ),
    },
}
ENDS_A_COUNT = (  # by the recipe before: the entry that ends it
    ("dpserve_verify/entries/statements.py", ("class Profiled(", COUNTED_FORM)),
    (
        "serving/pages/parts/entry_text.py",
        (
            '    "genesis": (',
            '    "counted": ("good", "counted", lambda value: "Rows were counted."),\n    "genesis": (',
        ),
    ),
)

KNOWS_DOOR = """
import sys
from pathlib import Path
from in_process import site_at
from serving.app import DOORS, make_app
from serving.rest.openapi import openapi

assert "/v1/letters/{word}" in openapi(DOORS)["paths"]
assert "/v1/letters/{word}" in {route.path for route in make_app().routes}
with site_at(Path(sys.argv[1]), DOORS) as site:
    assert site.ask("GET", "/v1/letters/privacy").status_code == 401
    assert site.bear(site.token("shop", "predict"), "GET", "/v1/letters/privacy").status_code == 403
    assert site.bear(site.token("audit", "audit"), "GET", "/v1/letters/privacy").json() == {"letters": 7}
sys.path.insert(0, "docs")
import reference
assert "## GET /v1/letters/{word}" in reference.rest()
"""
KNOWS_ENTRY = """
import sys
from ledgers import unjudged
from accountant.audit.audit import audit_place
from accountant.errors import EntryRefused, InputError
from accountant.home import Home
from accountant.ledger.remarks import remark
from serving.pages.parts.entry_text import describe

environment = {"DPSERVE_HOME": sys.argv[1] + "/home"}
home = Home.init(environment)
try:
    remark(home.ledger, " ", "ann")
except InputError:
    pass
else:
    raise AssertionError("an empty remark was written")
assert remark(home.ledger, "all is well", "ann") == 1
assert audit_place(environment).ok
assert "ann: all is well" in str(describe(home.ledger.log.entries(1, 1)[0]))
try:
    with home.ledger.log.writing() as writer:  # past the writer: the auditor reads it before it is written
        writer.append("remark", text="", by="ann")
except EntryRefused as error:
    assert "remark: must say something" in error.message
else:
    raise AssertionError("a remark that an audit refuses was written")
with unjudged(), home.ledger.log.writing() as writer:  # and looks for itself at what is
    writer.append("remark", text="", by="ann")
problems = audit_place(environment).problems
assert any("entry 2: remark: must say something" in problem for problem in problems), problems
"""
KNOWS_COUNT = """
import sys
from pathlib import Path
from ledgers import advance, copy, place, prepared, unjudged
from accountant.audit.audit import audit_home
from accountant.home import Home
from serving.pages.parts.entry_text import describe
from training.jobs import job
from training.kinds.count_steps import AskedCount
from training.kinds.registry import steps_of

home = Home.open(place(copy(prepared(), Path(sys.argv[1]) / "home")))
queued = job.submit(home, AskedCount("adult", "0.5", "age"), by="ann", queued=True)
assert job.recover(home)["stuck"] == []
assert steps_of(home, queued.seq).request.kind.to_json() == {"count": True}
found = job.measure(home, AskedCount("adult", "0.25", "sex"), by="ann")
assert (found["state"], found["count"][:1] != [], found["model"]) == ("issued", True, "")
(home.path / "counts" / str(found["job"]) / "count.dsse.json").read_bytes()
bodies = list(home.ledger.log.entries(0, home.ledger.log.size()))
assert [entry.value["type"] for entry in bodies[-4:]] == ["reserved", "started", "committed", "counted"]
assert "ann asked how many rows dataset adult has by one column" in describe(bodies[-4]).words
assert audit_home(home, []).problems == ()
advance(home.ledger, queued.seq, "committed")
with unjudged(), home.ledger.log.writing() as writer:  # past the judge: a profile's entry does not end a count
    writer.append("profiled", reservation=queued.seq, statement="0" * 64, dataset="adult")
problems = audit_home(home, []).problems
assert any("counts a dataset; another entry ends it" in problem for problem in problems), problems
"""


def take(house: Path, name: str, *changes: tuple[str, str]) -> None:
    for before, after in changes:
        assert bool(before) == (house / name).exists()
        text = (house / name).read_text() if before else ""
        assert not before or text.count(before) == 1, (name, before)
        (house / name).write_text(text.replace(before, after) if before else after)


def run(house: Path, *words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{house}:{house}/tests/helpers"}
    done = subprocess.run(
        [sys.executable, *words], cwd=house, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the house in which all the walks were taken."""
    folder = tmp_path_factory.mktemp("house")
    for name in ("dpserve_verify", *ROOMS, "tests", "docs"):
        unused = ("__pycache__", "node_modules") if name != "docs" else ("__pycache__", "images")
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*unused))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    for steps in WALKS.values():
        for step in steps.values():
            take(folder, *step)
    for step in ENDS_A_COUNT:
        take(folder, *step)
    return folder


@pytest.mark.parametrize("recipe", WALKS)
def test_a_recipe_names_the_files_that_its_walk_edits(recipe):
    section = (ROOT / "docs" / "extending.md").read_text("utf-8").split(f"## Add a {recipe}\n")[1].split("\n## ")[0]
    files = {int(number): name for number, name in re.findall(r"^(\d)\. `([\w/.]+)`", section, re.M)}
    folders = {number: name.rpartition("/")[0] for number, name in files.items()}
    assert folders == {number: step[0].rpartition("/")[0] for number, step in WALKS[recipe].items()}
    assert all(files[number] == name for number, (name, (before, _), *_) in WALKS[recipe].items() if before)


def test_the_recipe_of_a_database_names_every_file_that_knows_which_it_is():
    """PostgreSQL, in the order of the recipe: where it is opened, told from SQLite, installed and tested."""
    section = (ROOT / "docs" / "extending.md").read_text("utf-8").split("## Add a database\n")[1].split("\n## ")[0]
    files = re.findall(r"^\d\. `([\w/.]+)`", section, re.M)
    assert files[-2:] == ["pyproject.toml", "tests/helpers/postgres.py"]
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    asks = {path.relative_to(ROOT).as_posix() for path in sources if "dialect.name" in path.read_text("utf-8")}
    others = {f"training/rows/sources/{name}.py" for name in ("sql", "catalogs")}  # rows, read once
    assert asks - others == set(files[:-2])
    assert "postgresql+psycopg://" in FORMS
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert "psycopg" in extras["postgres"][0]
    locks = [line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if "--extra serve" in line]
    assert locks
    assert all("--extra postgres" in line for line in locks)
    assert 'params=["sqlite", "postgresql"]' in (ROOT / files[-1]).read_text("utf-8")


@pytest.mark.slow
def test_a_toy_learner_keeps_the_contract(house):
    contract = "tests/training/learners/test_learner_contract.py"
    run(house, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", contract, "-k", "toy")


@pytest.mark.slow
def test_a_toy_door_answers_and_is_described(house, tmp_path):
    run(house, "-c", KNOWS_DOOR, str(tmp_path))


@pytest.mark.slow
def test_a_toy_entry_is_written_read_and_audited(house, tmp_path):
    run(house, "-c", KNOWS_ENTRY, str(tmp_path))


@pytest.mark.slow
def test_a_toy_kind_of_job_is_planned_played_stated_and_audited(house, tmp_path):
    run(house, "-c", KNOWS_COUNT, str(tmp_path))
