"""The shape of the house, read from the source: who imports whom, where randomness and rows come in, and sizes.

Every rule is a function from one source text to its breaches, so that each is also shown to catch a bad text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("accountant", "models", "training", "serving", "dpserve")
SOURCES = sorted(path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py"))

# What of training/ the doors may import. No other module of it is public: what it makes may hold rows.
PUBLIC_TRAINING = {
    "training.derive",
    "training.job",
    "training.job_views",
    "training.learners.docs",
    "training.plans",
    "training.queue",
    "training.rows.datasets",
    "training.rows.row_files",
    "training.tuning.tune",
}

# A room may import itself and these. A dotted name allows that module alone.
ARROWS = {
    "accountant": set(),
    "models": {"accountant"},
    "training": {"accountant", "models"},
    "serving": {"accountant", "models", *PUBLIC_TRAINING},
    "dpserve": set(),  # the client: it is installed where nothing else of ours is
}
OUTSIDE = {"tests", "benchmarks", "examples", "docs"}

# Noise is drawn in one file. Two more make keys and tokens, which need the operating system's entropy but no noise.
RANDOM = ("random", "secrets", "numpy.random", "opendp", "os.urandom", "os.getrandom")
ENTROPY = {"secrets", "os.urandom"}
MAY_DRAW = {
    "accountant/mechanisms.py": set(RANDOM),
    "accountant/keys/private_keys.py": ENTROPY,
    "serving/process/tokens.py": ENTROPY,
}

# What turns files into rows. Plain pyarrow (streams of records) is not among them.
READERS = (
    *(f"pyarrow.{name}" for name in ("parquet", "csv", "dataset", "feather", "json", "orc")),
    *("pandas", "polars", "duckdb", "dask", "distributed"),
)

MAX_LINES = 400
MAX_FUNCTION = 60

Rule = Callable[[str, str], list[str]]


def within(name: str, prefixes: set[str] | tuple[str, ...]) -> bool:
    """Whether a dotted name is one of `prefixes` or lies under one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def imported(text: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported, also inside functions and by `import_module("...")`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from ((node.lineno, arg.value) for arg in node.args if isinstance(arg, ast.Constant))


def used(text: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every attribute looked up on a plain name, with import aliases undone."""
    tree = ast.parse(text)
    imports = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    aliases = {alias.asname: alias.name for alias in imports if alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            yield node.lineno, f"{aliases.get(first, first)}.{rest}"


def arrows(path: str, text: str) -> list[str]:
    """A room imports only what lies to its right."""
    room = path.partition("/")[0]
    allowed = ARROWS[room] | {room}
    ours = [(line, name) for line, name in imported(text) if within(name, {*ROOMS, *OUTSIDE})]
    return [f"{path}:{line}: imports {name}" for line, name in ours if not within(name, allowed)]


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
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION}")
    return found


RULES: tuple[Rule, ...] = (arrows, randomness, rows, sizes)

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
    (arrows, "serving/cli/app.py", "from dpserve import Client"),
    (randomness, "training/session.py", "import random"),
    (randomness, "training/session.py", "from numpy.random import default_rng"),
    (randomness, "training/session.py", "from numpy import random"),
    (randomness, "training/session.py", "import numpy as np\nx = np.random.default_rng(0)"),
    (randomness, "training/session.py", "import os\nx = os.urandom(8)"),
    (randomness, "training/session.py", "import opendp.prelude as dp"),
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
