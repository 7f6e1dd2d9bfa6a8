"""The shape of the house, read from the source: who imports whom, where randomness and rows come in, and sizes.

`python benchmarks/house.py` prints its figures.

Every rule is a function from one source text to its breaches, so that each is also shown to catch a bad text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from accountant.system.quiet import REPORTING
from benchmarks import house

ROOT = Path(__file__).resolve().parents[1]
EXTENSIONS = {
    "local",
    "dpserve_cluster",
    "dpserve_platform",
}  # by entry points: no other room imports them
ROOMS = ("dpserve_verify", "accountant", "models", "training", *sorted(EXTENSIONS), "serving", "dpserve")
SOURCES = sorted(path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py"))

# What of training/ the doors may import. No other module of it is public: what it makes may hold rows.
PUBLIC_TRAINING = {
    "training.datasets.datasets",
    "training.datasets.decisions",
    "training.datasets.described",
    "training.datasets.drafts",
    "training.datasets.growing.append",
    "training.datasets.growing.delete",
    "training.datasets.made_up",
    "training.datasets.opened",
    "training.finish.derive",
    "training.jobs.attack",
    "training.jobs.job",
    "training.jobs.measured",
    "training.jobs.queue",
    "training.jobs.renewal",
    "training.jobs.schedule",
    "training.kinds.registry",
    "training.learners.choice",
    "training.learners.docs",
    "training.learners.job_words",
    "training.learners.others",
    "training.measuring.answers.answers",
    "training.measuring.profile.profile",
    "training.measuring.profile.refine",
    "training.measuring.profile.release",
    "training.measuring.profile.synthetic_rows",
    "training.measuring.worth.covers",
    "training.measuring.worth.evaluate",
    "training.measuring.worth.public_rows",
    "training.planning.job_views",
    "training.planning.other_noise",
    "training.planning.plans",
    "training.planning.price_engine",
    "training.planning.starts",
    "training.requests",
    "training.rows.schema.described",
    "training.rows.schema.schema",
    "training.rows.schema.schema_text",
    "training.datasets.file_check",
    "training.rows.tables.file_check",
    "training.rows.tables.row_files",
}

# What of serving/ an extension may: what a door, a page and a command are made of.
PUBLIC_SERVING = {
    "serving.cli.backends",
    "serving.cli.complete",
    "serving.cli.data.schema",
    "serving.cli.requests",
    "serving.cli.server",
    "serving.cli.terminal",
    "serving.cli.tree",
    "serving.http",
    "serving.operations",
    "serving.pages.datasets",
    "serving.pages.parts",
    "serving.rest.json_schemas",
    "serving.wire",
}

# What of training/ a campaign needs: the schema, a file's columns, and how a model is issued; of institutions also how
# a learner is rehearsed and played, and how a dataset is charged for it.
FOR_CAMPAIGNS = {
    "training.finish.lease",
    "training.finish.release",
    "training.rows.schema.schema",
    "training.rows.tables.row_files",
    "training.datasets.datasets",
    "training.datasets.made_up",
    "training.jobs.draw_journal",
    "training.kinds.job_steps",
    "training.kinds.registry",
    "training.learners.choice",
    "training.learners.ebm.widths",
    "training.learners.job_words",
    "training.learners.parameters",
    "training.measuring.profile.profile",
    "training.measuring.answers.cells",
    "training.measuring.planning",
    "training.measuring.worth.evaluate",
    "training.requests",
    "training.rows.packed.cells",
    "training.rows.partitions.partition",
    "training.rows.partitions.rows",
    "training.session",
}

# What of training/ learners of others need: what a learner is handed, how it is rehearsed, and rows to check it on.
FOR_LEARNERS_OF_OTHERS = {
    "training.calibration",
    "training.datasets.made_up",
    "training.finish.lease",
    "training.learners",
    "training.planning.plans",
    "training.rows",
    "training.session",
}

# A room may import itself and these. A dotted name allows that module alone.
ARROWS = {
    "dpserve_verify": set(),  # it is installed with cryptography alone
    "accountant": {"dpserve_verify"},
    "models": {"dpserve_verify", "accountant"},
    "training": {"dpserve_verify", "accountant", "models"},
    "local": {"dpserve_verify", "accountant", "models", *FOR_CAMPAIGNS, *PUBLIC_SERVING},
    "dpserve_cluster": {"dpserve_verify", "accountant", "models", "training.rows"},
    "dpserve_platform": {"dpserve_verify", "accountant", "models", *FOR_LEARNERS_OF_OTHERS, *PUBLIC_SERVING},
    "serving": {"dpserve_verify", "accountant", "models", "dpserve", *PUBLIC_TRAINING},
    "dpserve": {
        "dpserve_verify",
        "training.learners",
        "training.notebook",
    },  # by dpserve.learners alone; the client needs nothing of ours
}
OUTSIDE = {"tests", "benchmarks", "studies", "examples", "docs"}

# Folder: rooms, and which folders of each it may import ("." is the room itself). Imports for types alone are left out.
MAP = """
dpserve_verify:
dpserve_verify/audit: dpserve_verify(. certificates entries formats keys log privacy system)
dpserve_verify/certificates: dpserve_verify(. formats keys log privacy system)
dpserve_verify/command: dpserve_verify(. audit certificates formats keys log privacy system)
dpserve_verify/entries: dpserve_verify(. certificates formats keys privacy)
dpserve_verify/formats: dpserve_verify(.)
dpserve_verify/keys: dpserve_verify(. formats)
dpserve_verify/log: dpserve_verify(. formats keys system)
dpserve_verify/privacy: dpserve_verify(. formats)
dpserve_verify/system: dpserve_verify(.)
accountant: dpserve_verify(.) accountant(system)
accountant/access: dpserve_verify(. entries formats keys) accountant(. keys ledger ledger/families log store
    system)
accountant/audit: dpserve_verify(. audit entries formats keys log system) accountant(home ledger ledger/families log
    store)
accountant/certificates: dpserve_verify(certificates formats keys privacy) accountant(. keys ledger/families
    privacy)
accountant/home: dpserve_verify(. keys log system) accountant(. keys ledger log store store/migrations system)
accountant/keys: dpserve_verify(. keys system) accountant(store system)
accountant/ledger: dpserve_verify(. certificates entries formats keys log privacy) accountant(. keys ledger/families log
    privacy store system)
accountant/ledger/families: dpserve_verify(. formats log privacy) accountant(. log privacy store)
accountant/log: dpserve_verify(. audit entries formats keys log privacy system) accountant(. keys store system)
accountant/noise: dpserve_verify(. privacy) accountant(system)
accountant/privacy: dpserve_verify(privacy)
accountant/store: dpserve_verify(. entries formats) accountant(. store/migrations)
accountant/store/migrations: dpserve_verify(.)
accountant/store/migrations/versions:
accountant/system: dpserve_verify(. audit keys system)
models:
models/edit: dpserve_verify(. formats) models(features forms parts)
models/explain: dpserve_verify(.) accountant(system) models(features parts)
models/features: dpserve_verify(.)
models/forms: dpserve_verify(.) accountant(system) models(explain features onnx parts)
models/onnx: dpserve_verify(.) accountant(. system) models(explain features parts)
models/parts: dpserve_verify(. formats) models(features)
models/answers: dpserve_verify(. certificates) accountant(certificates) models(explain features profile)
models/profile: dpserve_verify(. certificates privacy) accountant(certificates) models(explain features parts)
models/programs: dpserve_verify(.) models(features onnx parts)
models/store: dpserve_verify(. certificates formats keys log system) accountant(. certificates home keys ledger
    ledger/families system) models(explain features forms parts worth)
models/worth: dpserve_verify(. certificates keys privacy) accountant(. certificates home ledger)
    models(explain features forms parts profile)
training:
training/calibration: dpserve_verify(. certificates privacy) accountant(privacy system) models(features forms onnx)
    training(session)
training/datasets: dpserve_verify(. certificates formats keys privacy system) accountant(. certificates home ledger
    ledger/families privacy system) models(features) training(planning requests rows rows/kernels rows/packed
    rows/partitions rows/people rows/schema rows/sources rows/tables)
training/datasets/drafts: dpserve_verify(. privacy system) accountant(. access home ledger/families system)
    models(features) training(datasets datasets/growing requests rows/people rows/schema rows/sources rows/tables)
training/datasets/growing: dpserve_verify(. system) accountant(. home ledger ledger/families) models(features)
    training(datasets rows/packed rows/schema rows/tables)
training/finish: dpserve_verify(. certificates keys privacy system) accountant(. access certificates home ledger
    ledger/families system) models(edit forms onnx store) training(rows/schema)
training/jobs: dpserve_verify(. certificates formats keys privacy system) accountant(. access certificates home ledger
    ledger/families noise system) models(store worth) training(datasets datasets/growing finish kinds learners measuring
    measuring/answers measuring/worth planning requests rows/partitions rows/schema rows/tables session)
training/kinds: dpserve_verify(. certificates keys privacy system) accountant(. access certificates home ledger
    ledger/families system) models(answers forms profile worth) training(datasets finish learners measuring
    measuring/answers measuring/profile measuring/worth planning requests rows/partitions rows/schema session
    tuning)
training/learners: dpserve_verify(. formats) accountant(. ledger ledger/families privacy system) models(features
    forms parts) training(learners/base learners/boosting requests rows/statistics session)
training/learners/base: dpserve_verify(. privacy) accountant(noise privacy system) models(explain features forms
    onnx parts) training(calibration rows/packed rows/partitions rows/schema session)
training/learners/boosting: dpserve_verify(. privacy) accountant(noise) models(features forms parts)
    training(learners/base rows/kernels rows/partitions rows/statistics session)
training/learners/ebm: dpserve_verify(. privacy) accountant(. noise privacy) models(features forms parts)
    training(learners/base learners/boosting rows/kernels rows/packed rows/partitions rows/statistics session)
training/measuring: dpserve_verify(. formats privacy) accountant(home ledger/families) training(learners requests
    rows/schema session)
training/measuring/answers: dpserve_verify(. privacy) accountant(. certificates home ledger ledger/families system)
    models(answers features parts profile) training(datasets measuring measuring/profile planning requests rows/packed
    rows/partitions rows/schema rows/tables session)
training/measuring/profile: dpserve_verify(. certificates privacy) accountant(. certificates home ledger
    ledger/families noise) models(features parts profile) training(calibration datasets learners/boosting measuring
    planning requests rows/partitions rows/schema rows/tables session)
training/measuring/worth: dpserve_verify(. certificates privacy) accountant(. access home ledger ledger/families
    noise system) models(features forms parts profile store worth) training(calibration datasets measuring planning
    requests rows/packed rows/partitions rows/schema rows/tables session)
training/notebook: dpserve_verify(. formats privacy) accountant(access home ledger/families privacy system)
    models(features parts) training(calibration datasets/drafts jobs learners/base requests rows/people rows/schema
    rows/tables session)
training/planning: dpserve_verify(. certificates formats privacy system) accountant(. access certificates home ledger
    ledger/families privacy system) models(answers features forms parts store worth) training(calibration learners
    learners/ebm requests rows/packed rows/partitions rows/schema session tuning)
training/requests: dpserve_verify(. certificates privacy) accountant(. ledger/families) models(features)
training/rows: dpserve_verify(.) accountant(home system)
training/rows/kernels: accountant(system)
training/rows/packed: dpserve_verify(. system) accountant(. system) models(features) training(rows/kernels)
training/rows/partitions: dpserve_verify(. privacy) accountant(. system) models(features parts)
    training(rows/kernels rows/packed)
training/rows/people: dpserve_verify(.) accountant(.) models(features) training(rows/kernels rows/packed)
training/rows/schema: dpserve_verify(. privacy) accountant(. home ledger ledger/families) models(features parts)
    training(rows/packed)
training/rows/sources: dpserve_verify(. system) accountant(. system) models(features)
    training(rows/kernels rows/packed rows/people)
training/rows/statistics: dpserve_verify(.) models(parts) training(rows/kernels rows/packed rows/partitions)
training/rows/tables: dpserve_verify(. privacy system) accountant(. system) models(features parts)
    training(rows/kernels rows/packed rows/partitions rows/people rows/schema rows/sources)
training/session: dpserve_verify(. privacy) accountant(. noise privacy) models(features parts) training(rows/packed
    rows/partitions rows/schema)
training/tuning: dpserve_verify(. formats privacy system) accountant(home noise) models(features forms parts)
    training(calibration learners learners/base requests rows/partitions session)
local:
local/aggregator: dpserve_verify(. formats keys privacy system) accountant(. keys noise) local(campaign reports
    rounds)
local/campaign: dpserve_verify(. formats keys log privacy system) accountant(. access home ledger ledger/families
    log noise system) models(features forms) training(datasets finish jobs kinds measuring measuring/worth requests
    rows/schema rows/tables) local(forecast reports rounds turns)
local/commands: dpserve_verify(. keys privacy system) accountant(home) models(store) local(aggregator campaign
    institution owner) serving(cli cli/backends cli/backends/server)
local/doors: accountant(home) local(campaign reports) serving(http operations pages/parts rest wire) training(requests)
local/federated: dpserve_verify(. formats system) accountant(. home system) local(campaign institution owner rounds)
local/forecast: dpserve_verify(. privacy) accountant(noise system) models(features forms worth)
    training(rows/packed rows/partitions session) local(reports rounds turns)
local/institution: dpserve_verify(. formats keys privacy system) accountant(. home ledger/families noise)
    training(datasets finish kinds learners measuring/answers rows/partitions rows/schema) local(campaign forecast
    reports rounds)
local/owner: dpserve_verify(. formats) accountant(. noise system) models(features) local(campaign reports turns)
local/reports: dpserve_verify(. formats keys privacy) accountant(. ledger/families noise privacy) models(features
    forms)
local/rounds: dpserve_verify(. certificates formats privacy) accountant(. ledger/families noise) models(forms)
    training(jobs learners learners/ebm measuring/profile measuring/worth requests rows/partitions rows/schema session)
    local(reports)
local/turns: dpserve_verify(. formats system) accountant(. home ledger noise) models(features forms parts)
    local(reports)
serving: dpserve_verify(.) accountant(access system) training(datasets/drafts learners) serving(http operations pages
    pages/parts process process/config process/watch process/workers rest wire)
serving/cli: dpserve_verify(. audit certificates formats keys log privacy system) accountant(. access audit
    certificates home keys ledger ledger/families log store system) models(answers explain parts profile store worth)
    training(datasets/drafts jobs learners planning requests) serving(cli/backends cli/backends/home
    cli/backends/server . operations pages/parts process process/config process/watch process/workers wire)
serving/cli/backends: dpserve_verify(. system) accountant(access system)
serving/cli/backends/home: dpserve_verify(. audit certificates keys log) accountant(access audit certificates home
    ledger ledger/families log system) models(store worth) training(jobs kinds requests) serving(cli/backends operations
    process/watch wire)
serving/cli/backends/server: dpserve_verify(. audit certificates keys log system) accountant(. audit certificates
    system) models(answers features profile store worth) training(datasets measuring/profile requests rows/tables)
    serving(cli/backends operations wire) dpserve(.)
serving/cli/data: dpserve_verify(. audit certificates formats keys privacy) accountant(. certificates home ledger
    ledger/families)
    models(answers profile) training(datasets datasets/drafts datasets/growing jobs learners measuring/profile requests
    rows/schema rows/tables) serving(cli cli/backends operations wire)
serving/cli/released: dpserve_verify(. certificates keys system) accountant(. system) models(edit explain features forms
    programs store worth) serving(cli operations)
serving/http: dpserve_verify(. formats) accountant(. access home ledger/families system) training(planning)
    serving(process process/config process/watch wire)
serving/operations: dpserve_verify(. entries privacy) accountant(. access home ledger
    ledger/families log store system)
    models(edit explain features forms parts store) training(finish planning requests) serving(http process
    process/watch rest wire) dpserve(.)
serving/pages: dpserve_verify(. certificates formats log privacy) accountant(. access audit certificates home keys
    ledger ledger/families log store system) models(answers edit explain features parts profile store worth)
    training(datasets datasets/drafts kinds learners measuring/profile planning
    requests rows/schema) serving(http operations pages/parts process process/config process/watch rest wire)
serving/pages/parts: dpserve_verify(. entries formats log privacy) accountant(. access home ledger ledger/families store
    system) models(explain features forms worth) training(learners) serving(http process process/watch wire)
serving/process: dpserve_verify(. certificates entries formats keys system) accountant(. access home keys ledger system)
    models(store) serving(process/config process/watch process/workers wire)
serving/process/config: dpserve_verify(. formats privacy system) accountant(access home system) serving(wire)
serving/process/watch: dpserve_verify(. audit certificates log system) accountant(audit home ledger ledger/families
    log) models(store worth) serving(process/config wire)
serving/process/workers: dpserve_verify(.) accountant(home system) serving(process/config process/watch)
serving/rest: dpserve_verify(. formats log privacy) accountant(. access certificates home ledger
    ledger/families system) models(explain features onnx parts store worth) training(datasets datasets/drafts jobs kinds
    measuring/profile measuring/worth planning requests rows/schema) serving(http process process/config
    process/watch wire)
serving/wire: dpserve_verify(. formats system) accountant(. system) models(features)
dpserve: dpserve_verify(. audit certificates keys log)
dpserve_platform:
dpserve_platform/commands: dpserve_verify(privacy) accountant(home ledger ledger/families) dpserve_platform(outside
    replay) serving(cli cli/backends cli/data)
dpserve_platform/doors: dpserve_verify(. formats) accountant(access home ledger ledger/families)
    dpserve_platform(outside replay) serving(http pages pages/parts rest wire)
dpserve_platform/outside: dpserve_verify(. certificates formats keys log privacy system) accountant(home ledger
    ledger/families noise privacy system) models(forms parts) training(calibration rows rows/partitions session)
dpserve_platform/replay: dpserve_verify(. privacy system) accountant(. home ledger ledger/families noise)
    models(features) training(calibration datasets finish learners planning rows/partitions rows/schema rows/tables
    session) dpserve_platform(outside)
dpserve_cluster: dpserve_verify(.) accountant(. system) models(. features) training(rows rows/partitions rows/schema
    rows/tables)
"""

# Noise is drawn in one file, an owner's report in another, and shares of numbers in a third. Three more make
# keys and tokens, which need the operating system's entropy but no noise.
RANDOM = ("random", "secrets", "numpy.random", "opendp", "os.urandom", "os.getrandom")
ENTROPY = {"secrets", "os.urandom"}
MAY_DRAW = {
    "accountant/noise/mechanisms.py": set(RANDOM),
    "accountant/noise/objective.py": {"os.urandom"},
    "accountant/noise/one_of_k.py": {"os.urandom"},
    "accountant/noise/shares.py": {"os.urandom"},
    "accountant/keys/encrypted_pem.py": {"secrets"},
    "accountant/ledger/attacks.py": {"os.urandom"},  # coins of canaries, who are nobody
    "accountant/keys/private_keys.py": ENTROPY,
    "serving/cli/agents.py": {"secrets"},  # seals plans
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
    """Of a file: `accountant/log` of `accountant/log/witness.py`."""
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
    """Files of rows are opened in training/, owners' own in local/, and on other hosts by dpserve_cluster/."""
    if path.startswith(("training/", "local/owner/", "dpserve_cluster/")):
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


def small(path: str, text: str) -> list[str]:
    """The verifier is installed with cryptography alone; types count as well."""
    if not path.startswith("dpserve_verify/"):
        return []
    known = {"dpserve_verify", "cryptography", *sys.stdlib_module_names}
    return [f"{path}:{line}: imports {name}" for line, name in imported(text) if name.partition(".")[0] not in known]


def quiet(path: str, text: str) -> list[str]:
    """What reports on its users is imported by `import_quietly` alone; types count as well."""
    return [f"{path}:{line}: imports {name}" for line, name in imported(text) if within(name, set(REPORTING))]


RULES: tuple[Rule, ...] = (quiet, small, arrows, folder_arrows, reexports, randomness, rows, sizes)

BAD = [
    (quiet, "models/onnx/runtime.py", "def f():\n    import onnxruntime"),
    (quiet, "serving/service.py", "from bentoml import service"),
    (quiet, "serving/app.py", 'bentoml = later("bentoml.serving")'),
    (quiet, "accountant/system/quiet.py", 'import_module("onnxruntime.capi")'),
    (small, "dpserve_verify/log/notes.py", "import numpy as np"),
    (small, "dpserve_verify/log/notes.py", "if TYPE_CHECKING:\n    from sqlalchemy import Connection"),
    (small, "dpserve_verify/log/notes.py", "def f():\n    from accountant.home import Home"),
    (arrows, "accountant/ledger/ledger.py", "from models.forms.ensemble import Ensemble"),
    (arrows, "models/forms/ensemble.py", "import training.session.session"),
    (arrows, "training/jobs/job.py", "def f():\n    from serving import app"),
    (arrows, "serving/app.py", "from training.session import session"),
    (arrows, "serving/app.py", "from training.jobs import Job"),
    (arrows, "serving/cli/data.py", "from training.rows.tables.data import rows_of"),
    (arrows, "serving/cli/data.py", "from training.rows.tables import frames"),
    (arrows, "local/owner/program.py", "from training.calibration.calibrate import calibrate"),
    (arrows, "training/jobs/job.py", "from local.campaign import campaigns"),
    (arrows, "serving/app.py", "from local.doors import campaigns"),
    (arrows, "serving/cli/app.py", 'campaigns = later("local.campaign.campaigns")'),
    (arrows, "local/doors/pages.py", "from serving.pages import home"),
    (arrows, "training/datasets/datasets.py", "from dpserve_cluster.driver import open_cluster"),
    (arrows, "training/planning/plans.py", "from dpserve_platform.outside import admitted"),
    (arrows, "serving/cli/app.py", 'TREE = later("dpserve_platform.commands.tree")'),
    (arrows, "dpserve_platform/outside/admitted.py", "from training.jobs import job"),
    (arrows, "serving/rest/jobs.py", "from training.learners import LazyBB"),
    (arrows, "serving/app.py", "import training"),
    (arrows, "serving/app.py", "import importlib\nimportlib.import_module('training.session.session')"),
    (arrows, "training/jobs/job.py", "from tests.helpers import rows"),
    (arrows, "dpserve/client.py", "from accountant.errors import DpserveError"),
    (folder_arrows, "dpserve/client.py", "from training.learners import LazyBB"),
    (folder_arrows, "serving/cli/app.py", "from dpserve import Client"),
    (folder_arrows, "serving/rest/jobs.py", "from dpserve.client import Client"),
    (folder_arrows, "accountant/log/collect.py", "from accountant.ledger.ledger import Ledger"),
    (folder_arrows, "accountant/privacy/gdp.py", "def f():\n    import accountant.store.store"),
    (folder_arrows, "models/onnx/nodes.py", "from models.store import bundle"),
    (folder_arrows, "serving/wire/quick_json.py", "from serving.rest import models"),
    (folder_arrows, "training/nowhere/new.py", "from training.session import session"),
    (folder_arrows, "local/owner/program.py", "from training.session.session import Session"),
    (reexports, "models/features/features.py", "from models.forms import ensemble as ensemble"),
    (randomness, "training/session/session.py", "import random"),
    (randomness, "training/session/session.py", "from numpy.random import default_rng"),
    (randomness, "training/session/session.py", "from numpy import random"),
    (randomness, "training/session/session.py", "import numpy as np\nx = np.random.default_rng(0)"),
    (randomness, "training/session/session.py", "import os\nx = os.urandom(8)"),
    (randomness, "training/session/session.py", "import opendp.prelude as dp"),
    (randomness, "training/session/session.py", 'dp = later("opendp.measurements")'),
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
    (quiet, "models/onnx/runtime.py", 'onnxruntime = import_quietly("onnxruntime")'),
    (small, "dpserve_verify/log/notes.py", "import re\nfrom cryptography.exceptions import InvalidSignature"),
    (small, "accountant/privacy/worst_range.py", "import numpy as np"),
    (
        arrows,
        "serving/app.py",
        "from training.jobs import job\nfrom training.rows.tables.row_files import x\nimport accountant.ledger",
    ),
    (arrows, "training/learners/ebm/ebm.py", "from . import base\nfrom models.forms import ensemble"),
    (
        folder_arrows,
        "serving/cli/jobs.py",
        "from training.jobs import job\nfrom accountant.ledger.ledger import Ledger",
    ),
    (
        folder_arrows,
        "accountant/log/collect.py",
        "from dpserve_verify.log import notes\nif TYPE_CHECKING:\n    from accountant.ledger.ledger import Ledger",
    ),
    (reexports, "models/features/features.py", "from models import forms as model_forms"),
    (randomness, "accountant/noise/mechanisms.py", "import opendp.prelude as dp\nimport secrets"),
    (randomness, "accountant/keys/private_keys.py", "import secrets"),
    (randomness, "training/session/session.py", "import randomised_names\nself.random = 1"),
    (rows, "training/dataset.py", "import pyarrow.parquet as pq"),
    (rows, "serving/infer.py", "import pyarrow as pa"),
    (sizes, "models/store/bundle.py", "x = 1\n" * MAX_LINES),
]


def test_the_core_imports_no_extension():
    core = {room: allowed for room, allowed in ARROWS.items() if room not in EXTENSIONS}
    assert [room for room, allowed in core.items() if any(within(name, EXTENSIONS) for name in allowed)] == []


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
    """Imports by a text counted."""
    assert house.circles(house.arrows(sources())) == []
    assert house.circles(house.folder_arrows(house.arrows(sources()))) == []


def test_a_circle_is_found():
    texts = {"models/a.py": "from models import b", "models/b.py": "def f():\n    from models.c import x"}
    texts["models/c.py"] = "import models.a"
    trees = {path: ast.parse(text) for path, text in texts.items()}
    assert house.circles(house.arrows(trees)) == [sorted(texts)]
    del trees["models/c.py"]
    assert house.circles(house.arrows(trees)) == []


@pytest.mark.parametrize(
    "text",
    [
        'a = later("models.a")',
        'def f():\n    importlib.import_module("models.a")',
        'TABLE = {"it": "models.a"}\nit = load(TABLE["it"])',
        'if TYPE_CHECKING:\n    import models.a\nelse:\n    a = later("models.a")',
        'serve("models.a:it", require("uvicorn"))',
    ],
)
def test_a_circle_by_a_text_is_found(text):
    trees = {"models/a.py": ast.parse("import models.b"), "models/b.py": ast.parse(text)}
    assert house.circles(house.arrows(trees)) == [["models/a.py", "models/b.py"]]
    assert house.circles(house.arrows(trees, by_text=False)) == []


@pytest.mark.parametrize("text", ['a = "models.a"', 'a = later("models.a.name")', 'a = later("see models.a")'])
def test_a_text_that_imports_nothing_is_no_arrow(text):
    """A file that imports nothing by a text, and a text that is no module's name."""
    assert house.arrows({"models/a.py": ast.parse(""), "models/b.py": ast.parse(text)})["models/b.py"] == set()


def test_a_circle_of_folders_is_found():
    """Also of a folder and one inside it."""
    texts = {
        "models/a/one.py": "import models.b.two",
        "models/b/three.py": "import models.a.four",
        "models/a/four.py": "",
        "models/b/two.py": "import models.five",
        "models/five.py": "",
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    assert house.circles(house.arrows(trees)) == []
    assert house.circles(house.folder_arrows(house.arrows(trees))) == [["models/a", "models/b"]]
    del trees["models/b/three.py"]
    assert house.circles(house.folder_arrows(house.arrows(trees))) == []
    trees["models/six.py"] = ast.parse("import models.a.four")
    assert house.circles(house.folder_arrows(house.arrows(trees))) == [["models", "models/a", "models/b"]]


def test_the_language_is_measured():
    trees = {"a.py": ast.parse('def _two(x):\n    """Return x."""\n    found = x\n    doubled = x\n')}
    trees["b.py"] = ast.parse('def longer():\n    """The name."""\n\n\ndef three():\n    """Returns it."""')
    assert house.name_length(trees) == (3 + 6 + 5) / 3
    assert house.dialect_share(trees) == 0.5
    assert house.verb_share(trees) == pytest.approx(1 / 3)
    assert list(house.without_verb(trees["b.py"])) == ["1 longer: The name.", "5 three: Returns it."]
