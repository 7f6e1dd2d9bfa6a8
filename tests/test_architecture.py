"""The shape of the house, read from the source: who imports whom, where randomness and rows come in, and sizes.

`python benchmarks/house.py` prints its figures.

Every rule is a function from one source text to its breaches, so that each is also shown to catch a bad text.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks import house

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("accountant", "models", "training", "serving", "dpserve")
SOURCES = sorted(path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py"))

# What of training/ the doors may import. No other module of it is public: what it makes may hold rows.
PUBLIC_TRAINING = {
    "training.derive",
    "training.evaluation.evaluate",
    "training.evaluation.public_rows",
    "training.growing.append",
    "training.growing.delete",
    "training.growing.schedule",
    "training.job",
    "training.job_words",
    "training.job_views",
    "training.learners.choice",
    "training.learners.docs",
    "training.aggregator",
    "training.local.campaigns",
    "training.local.defining",
    "training.local.shared_campaigns",
    "training.local.sums",
    "training.owner",
    "training.plans",
    "training.profiles.profile",
    "training.profiles.refine",
    "training.profiles.release",
    "training.pricing",
    "training.queue",
    "training.registering",
    "training.rows.datasets",
    "training.rows.file_check",
    "training.rows.made_up",
    "training.rows.row_files",
    "training.rows.schema",
    "training.rows.schema_text",
    "training.rows.sources.described",
    "training.rows.sources.opened",
    "training.tuning.tune",
    "training.work_out",
}

# A room may import itself and these. A dotted name allows that module alone.
ARROWS = {
    "accountant": set(),
    "models": {"accountant"},
    "training": {"accountant", "models"},
    "serving": {"accountant", "models", "dpserve", *PUBLIC_TRAINING},
    "dpserve": set(),  # the client: it is installed where nothing else of ours is
}
OUTSIDE = {"tests", "benchmarks", "examples", "docs"}

# Folder: rooms, and which folders of each it may import ("." is the room itself). Imports for types alone are left out.
MAP = """
accountant: accountant(keys ledger log privacy store)
accountant/audit: accountant(. certificates keys log privacy store)
accountant/certificates: accountant(. keys ledger log privacy)
accountant/keys: accountant(. store)
accountant/ledger: accountant(. keys ledger/blocks log privacy store)
accountant/ledger/blocks: accountant(. ledger log privacy store)
accountant/log: accountant(. keys store)
accountant/privacy: accountant(.)
accountant/store: accountant(. store/migrations)
accountant/store/migrations: accountant(. store)
accountant/store/migrations/versions: accountant(.)
models: accountant(.)
models/edit: accountant(.) models(. forms)
models/explain: accountant(.) models(.)
models/forms: accountant(.) models(. explain onnx)
models/onnx: accountant(.) models(. explain)
models/profile: accountant(. certificates privacy) models(. explain)
models/worth: accountant(. certificates ledger) models(. explain forms)
models/store: accountant(. certificates keys ledger log) models(. explain forms worth)
training: accountant(. certificates keys ledger ledger/blocks privacy) models(. edit forms onnx store worth)
    training(evaluation growing learners profiles rows rows/packed tuning)
training/evaluation: accountant(. certificates keys ledger ledger/blocks privacy) models(. forms store worth)
    training(. rows rows/packed rows/partitions rows/sources)
training/learners: accountant(. privacy) models(. explain forms onnx) training(. learners/boosting rows rows/packed)
training/learners/boosting: accountant(.) models(. forms) training(. learners rows rows/kernels)
training/learners/ebm: accountant(. privacy) models(. forms)
    training(. learners learners/boosting rows rows/kernels rows/partitions)
training/aggregator: accountant(. keys log) training(local)
training/federated: accountant(.) training(local owner)
training/growing: accountant(. ledger ledger/blocks) models(.) training(. rows rows/packed rows/sources)
training/local: accountant(. keys ledger log privacy) models(. forms) training(. local/boosted rows)
training/local/boosted: accountant(. ledger) models(. forms) training(local)
training/owner: accountant(. log) models(.) training(local local/boosted)
training/notebook: accountant(.) training(. learners rows)
training/profiles: accountant(. certificates ledger ledger/blocks privacy) models(profile)
    training(. evaluation rows rows/packed rows/partitions)
training/registering: accountant(. ledger) training(rows rows/sources)
training/rows: accountant(. ledger) models(.)
    training(rows/cluster rows/kernels rows/packed rows/partitions rows/sources)
training/rows/cluster: accountant(.) models(.) training(. rows rows/partitions)
training/rows/sources: accountant(.) models(.) training(rows rows/packed)
training/rows/kernels: accountant(.)
training/rows/partitions: accountant(.) models(.) training(rows rows/kernels rows/packed)
training/rows/packed: accountant(. ledger) models(.) training(rows rows/kernels)
training/tuning: accountant(. privacy) models(. forms) training(. rows rows/partitions)
serving: accountant(ledger) training(learners) serving(http pages process rest rest/growing wire)
serving/cli: accountant(. audit certificates keys ledger log store) models(profile store worth)
    training(. learners registering rows rows/sources) serving(pages process)
serving/cli/data: accountant(. certificates ledger ledger/blocks) models(profile) serving(cli)
    training(growing profiles registering rows rows/sources)
serving/cli/here: accountant(. audit certificates keys ledger log) models(edit profile store worth)
    training(. evaluation growing local profiles tuning) serving(cli cli/released process)
serving/cli/local: accountant(. keys) models(store) serving(cli) training(aggregator local owner)
serving/cli/released: accountant(.) models(. edit explain forms store worth) training(rows) serving(cli)
serving/cli/remote: accountant(. audit certificates keys ledger log) models(. profile store worth)
    training(rows rows/sources) serving(cli cli/released) dpserve(.)
serving/http: accountant(. ledger) training(.) serving(process wire)
serving/pages: accountant(. audit certificates ledger ledger/blocks log store)
    models(. edit explain forms profile store worth) training(. learners local profiles)
    serving(http pages/growing pages/manual pages/tasks process rest wire)
serving/pages/growing: accountant(. ledger ledger/blocks) training(growing) serving(http pages rest/growing wire)
serving/pages/manual: accountant(. ledger) serving(http pages wire)
serving/pages/tasks: accountant(. certificates ledger) training(registering rows) serving(http pages process rest wire)
serving/process: accountant(. audit certificates keys ledger log) models(store worth) serving(wire)
    training(registering)
serving/rest: accountant(. ledger log store) models(. edit explain forms onnx store worth)
    training(. evaluation local profiles registering rows tuning)
    serving(http process wire)
serving/rest/growing: accountant(. ledger) training(growing) serving(http rest wire)
serving/wire: accountant(.) models(.)
dpserve:
"""

# Noise is drawn in one file, an owner's report in another, and shares of numbers in a third. Two more make
# keys and tokens, which need the operating system's entropy but no noise.
RANDOM = ("random", "secrets", "numpy.random", "opendp", "os.urandom", "os.getrandom")
ENTROPY = {"secrets", "os.urandom"}
MAY_DRAW = {
    "accountant/mechanisms.py": set(RANDOM),
    "accountant/one_of_k.py": {"os.urandom"},
    "accountant/shares.py": {"os.urandom"},
    "accountant/keys/private_keys.py": ENTROPY,
    "serving/process/tokens.py": ENTROPY,
}

# What turns files into rows. Plain pyarrow (streams of records) is not among them.
READERS = (
    *(f"pyarrow.{name}" for name in ("parquet", "csv", "dataset", "feather", "json", "orc")),
    *("pandas", "polars", "duckdb", "dask", "distributed"),
)

MAX_LINES = 500  # an alarm, no aim: a file is cut where an idea ends, not where a count does
MAX_FUNCTION = 60
MAX_FILES = 24  # in one folder, likewise
MAX_BARE = 0  # public names without a docstring
MAX_ONCE = 87  # private helpers of at most four lines that are called once

Rule = Callable[[str, str], list[str]]


@cache
def parsed(text: str) -> ast.Module:
    """Every rule looks at every file."""
    return ast.parse(text)


@cache
def walked(text: str) -> tuple[ast.AST, ...]:
    """Every node that a rule asks for."""
    kinds = ast.Import | ast.ImportFrom | ast.Call | ast.Attribute | ast.FunctionDef | ast.AsyncFunctionDef
    return tuple(node for node in ast.walk(parsed(text)) if isinstance(node, kinds))


@cache
def imports(text: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Other than for types alone."""
    return tuple(house.imports(parsed(text)))


def sources() -> dict[str, ast.Module]:
    """As `house.sources(ROOT)`, each read once."""
    return {path: parsed((ROOT / path).read_text("utf-8")) for path in SOURCES}


@pytest.fixture(scope="module", autouse=True)
def _forget():
    yield
    for kept in (parsed, walked, imports, imported):
        kept.cache_clear()


def read_map(text: str) -> dict[str, set[str]]:
    """Folder -> folders that it may import, of a text like MAP."""
    folders: dict[str, set[str]] = {}
    for line in text.strip().replace("\n    ", " ").splitlines():
        folder, _, rooms = line.partition(":")
        named = ((room, name) for room, names in re.findall(r"(\w+)\(([^)]*)\)", rooms) for name in names.split())
        folders[folder] = {room if name == "." else f"{room}/{name}" for room, name in named}
    return folders


FOLDERS = read_map(MAP)


def within(name: str, prefixes: set[str] | tuple[str, ...]) -> bool:
    """Whether a dotted name is one of `prefixes` or lies under one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


@cache
def imported(text: str) -> tuple[tuple[int, str], ...]:
    """Line and full dotted name of everything imported, also inside functions, by `import_module` and by `later`."""
    found: list[tuple[int, str]] = []
    for node in walked(text):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func)[-1].endswith(("import_module", "__import__", "later")):
            found += ((node.lineno, arg.value) for arg in node.args if isinstance(arg, ast.Constant))
    return tuple(found)


def dotted(node: ast.expr) -> list[str]:
    """The names of `a.b.c`; the first is empty where what is before the dots is no name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *reversed(names)]


def used(text: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every attribute looked up on a plain name, with import aliases undone."""
    imports = [alias for node in walked(text) if isinstance(node, ast.Import) for alias in node.names]
    aliases = {alias.asname: alias.name for alias in imports if alias.asname}
    for node in walked(text):
        if isinstance(node, ast.Attribute):
            first, *rest = dotted(node)
            yield node.lineno, ".".join([aliases.get(first, first), *rest])


def arrows(path: str, text: str) -> list[str]:
    """A room imports only what lies to its right."""
    room = path.partition("/")[0]
    allowed = ARROWS[room] | {room}
    ours = [(line, name) for line, name in imported(text) if within(name, {*ROOMS, *OUTSIDE})]
    return [f"{path}:{line}: imports {name}" for line, name in ours if not within(name, allowed)]


def folder_of(path: str) -> str:
    """Of a file: `accountant/log` of `accountant/log/tiles.py`."""
    return path.rpartition("/")[0]


def into_folders(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Line and folder of everything of ours that is imported, other than for types alone."""
    for node in imports(text):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        for parts in (name.split(".") for name in names):
            inside = [folder for length in range(len(parts), 0, -1) if (folder := "/".join(parts[:length])) in FOLDERS]
            if inside and inside[0] != folder_of(path):
                yield node.lineno, inside[0]


def folder_arrows(path: str, text: str) -> list[str]:
    """A folder imports only the folders that MAP allows."""
    allowed = FOLDERS.get(folder_of(path), set())
    return [f"{path}:{line}: imports {folder}" for line, folder in into_folders(path, text) if folder not in allowed]


def reexports(path: str, text: str) -> list[str]:
    """A name is imported from where it is made: no `from a import b as b`."""
    count = house.reexports(parsed(text))
    return [f"{path}: {count} names only pass through"] if count else []


def randomness(path: str, text: str) -> list[str]:
    """Nothing is random outside the metered file."""
    banned = {name for name in RANDOM if name not in MAY_DRAW.get(path, set())}
    found = {hit for hit in (*imported(text), *used(text)) if within(hit[1], banned)}
    return [f"{path}:{line}: uses {name}" for line, name in sorted(found)]


def rows(path: str, text: str) -> list[str]:
    """Files of rows are opened in training/ alone."""
    if path.startswith("training/"):
        return []
    return [f"{path}:{line}: reads rows with {name}" for line, name in imported(text) if within(name, READERS)]


def sizes(path: str, text: str) -> list[str]:
    """Files and functions stay small enough to be read in one go."""
    lines = len(text.splitlines())
    found = [f"{path}: {lines} lines, at most {MAX_LINES}"] if lines > MAX_LINES else []
    for node in walked(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION}")
    return found


RULES: tuple[Rule, ...] = (arrows, folder_arrows, reexports, randomness, rows, sizes)

BAD = [
    (arrows, "accountant/ledger/ledger.py", "from models.forms.ensemble import Ensemble"),
    (arrows, "models/forms/ensemble.py", "import training.session"),
    (arrows, "training/job.py", "def f():\n    from serving import app"),
    (arrows, "serving/app.py", "from training import session"),
    (arrows, "serving/app.py", "from training.jobs import Job"),
    (arrows, "serving/cli/data.py", "from training.rows.data import rows_of"),
    (arrows, "serving/cli/data.py", "from training.rows import frames"),
    (arrows, "serving/rest/jobs.py", "from training.learners import LazyBB"),
    (arrows, "serving/app.py", "import training"),
    (arrows, "serving/app.py", "import importlib\nimportlib.import_module('training.session')"),
    (arrows, "training/job.py", "from tests.helpers import rows"),
    (arrows, "dpserve/client.py", "from accountant.errors import DpserveError"),
    (folder_arrows, "serving/cli/app.py", "from dpserve import Client"),
    (folder_arrows, "serving/rest/jobs.py", "from dpserve.client import Client"),
    (folder_arrows, "accountant/log/tiles.py", "from accountant.ledger.ledger import Ledger"),
    (folder_arrows, "accountant/privacy/gdp.py", "def f():\n    import accountant.store.store"),
    (folder_arrows, "models/onnx/nodes.py", "from models.store import bundle"),
    (folder_arrows, "serving/wire/quick_json.py", "from serving.rest import models"),
    (folder_arrows, "training/nowhere/new.py", "from training import session"),
    (reexports, "models/features.py", "from models.forms import ensemble as ensemble"),
    (randomness, "training/session.py", "import random"),
    (randomness, "training/session.py", "from numpy.random import default_rng"),
    (randomness, "training/session.py", "from numpy import random"),
    (randomness, "training/session.py", "import numpy as np\nx = np.random.default_rng(0)"),
    (randomness, "training/session.py", "import os\nx = os.urandom(8)"),
    (randomness, "training/session.py", "import opendp.prelude as dp"),
    (randomness, "training/session.py", 'dp = later("opendp.measurements")'),
    (randomness, "accountant/keys/private_keys.py", "import random"),
    (randomness, "serving/app.py", "import secrets"),
    (rows, "models/store/bundle.py", "import pyarrow.parquet as pq"),
    (rows, "serving/app.py", "from pyarrow import csv"),
    (rows, "serving/app.py", "from pandas import read_csv"),
    (sizes, "models/store/bundle.py", "x = 1\n" * (MAX_LINES + 1)),
    (sizes, "models/store/bundle.py", "def f():\n" + "    x = 1\n" * MAX_FUNCTION),
    (sizes, "models/store/bundle.py", "async def f():\n" + "    x = 1\n" * MAX_FUNCTION),
]
GOOD = [
    (
        arrows,
        "serving/app.py",
        "from training import job\nfrom training.rows.row_files import read_columns\nimport accountant.ledger.ledger",
    ),
    (arrows, "training/learners/ebm/ebm.py", "from . import base\nfrom models import ensemble"),
    (folder_arrows, "serving/cli/jobs.py", "from training import job\nfrom accountant.ledger.ledger import Ledger"),
    (
        folder_arrows,
        "accountant/log/tiles.py",
        "from accountant.log import notes\nif TYPE_CHECKING:\n    from accountant.ledger.ledger import Ledger",
    ),
    (reexports, "models/features.py", "from models import forms as model_forms"),
    (randomness, "accountant/mechanisms.py", "import opendp.prelude as dp\nimport secrets"),
    (randomness, "accountant/keys/private_keys.py", "import secrets"),
    (randomness, "training/session.py", "import randomised_names\nself.random = 1"),
    (rows, "training/dataset.py", "import pyarrow.parquet as pq"),
    (rows, "serving/infer.py", "import pyarrow as pa"),
    (sizes, "models/store/bundle.py", "x = 1\n" * MAX_LINES),
]


def test_every_room_has_sources():
    assert {path.partition("/")[0] for path in SOURCES} == set(ROOMS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_sources_keep_the_rule(rule):
    assert [breach for path in SOURCES for breach in rule(path, (ROOT / path).read_text("utf-8"))] == []


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_rule_catches_a_breach(rule, path, text):
    assert rule(path, text)


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_rule_allows_what_is_right(rule, path, text):
    assert rule(path, text) == []


def test_the_map_names_every_folder_and_no_other():
    assert FOLDERS.keys() == {folder_of(path) for path in SOURCES}
    assert set().union(*FOLDERS.values()) <= FOLDERS.keys()


def test_the_map_allows_no_more_than_there_is():
    used: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for path in SOURCES:
        used[folder_of(path)] |= {folder for _, folder in into_folders(path, (ROOT / path).read_text("utf-8"))}
    assert {folder: FOLDERS[folder] - used[folder] for folder in FOLDERS if FOLDERS[folder] - used[folder]} == {}


def test_no_folder_is_crowded():
    assert {folder: n for folder, n in Counter(map(folder_of, SOURCES)).items() if n > MAX_FILES} == {}


def test_public_names_say_what_they_are():
    bare = [f"{path}:{name}" for path, tree in sources().items() for name in house.undocumented(tree)]
    assert len(bare) <= MAX_BARE, bare
    assert list(house.undocumented(ast.parse("class A:\n    def f(self): ...\n    def _g(self): ..."))) == ["A", "A.f"]


def test_code_is_not_cut_finer_than_it_reads():
    once = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in sources().items()
        for node in house.helpers_called_once(tree)
    ]
    assert len(once) <= MAX_ONCE, once
    text = "def _a():\n    return 1\n\n\ndef _b():\n    return 2\n\n\nx = _a() + _b() + _b()"
    assert [node.name for node in house.helpers_called_once(ast.parse(text))] == ["_a"]


def test_files_and_folders_import_each_other_in_no_circle():
    assert house.circles(house.arrows(sources())) == []
    assert house.circles(house.beside(house.arrows(sources()))) == []


def test_a_circle_is_found():
    texts = {"models/a.py": "from models import b", "models/b.py": "def f():\n    from models.c import x"}
    texts["models/c.py"] = "import models.a"
    trees = {path: ast.parse(text) for path, text in texts.items()}
    assert house.circles(house.arrows(trees)) == [sorted(texts)]
    del trees["models/c.py"]
    assert house.circles(house.arrows(trees)) == []


def test_a_circle_of_folders_is_found():
    """Of those beside each other; what a folder and one inside it ask of each other is none."""
    texts = {
        "models/a/one.py": "import models.b.two",
        "models/b/three.py": "import models.a.four",
        "models/a/four.py": "",
    }
    texts |= {"models/b/two.py": "import models.five", "models/five.py": "import models.b.three"}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    assert house.circles(house.arrows(trees)) == []
    assert house.circles(house.beside(house.arrows(trees))) == [["models/a", "models/b"]]
    del trees["models/b/three.py"]
    assert house.circles(house.beside(house.arrows(trees))) == []
