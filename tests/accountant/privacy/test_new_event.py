"""The recipe "Add a privacy event" of docs/extending.md, walked through with a toy: zero-concentrated DP, rho a at
order a. Four files of a copy of the house are edited, and all of it knows the event."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

EVENT = '''@dataclass(frozen=True)
class Zcdp(PrivacyEvent):
    """rho-zCDP (Bun and Steinke 2016)."""

    type: ClassVar[str] = "zcdp"
    parameter: ClassVar[str] = "rho"
    rho: Decimal

    def __post_init__(self) -> None:
        _check("rho", self.rho, MAX_EPSILON)

    @property
    def pure(self) -> None:
        """None."""

    def rdp(self, order: float) -> float:
        """rho a."""
        return float(self.rho) * order

    @property
    def squared_width(self) -> Fraction:
        """8 rho."""
        return 8 * Fraction(self.rho)

    @property
    def words(self) -> str:
        """Its kind and rho."""
        return f"{self.type} with rho {decimal_string(self.rho)}"


SimpleEvent = BoundedRange | PureDp | Gaussian | Zcdp
'''
FORM = '''class ZcdpEvent(Form):
    """Zero-concentrated DP."""

    type: Literal["zcdp"]
    rho: Figure


Simple = EpsilonEvent | GaussianEvent | ZcdpEvent
'''
SCRIPT = '{ parameter: "rho", pure: () => null, renyi: (event, a) => a * Number(event.rho) }'
PURE = "        case Gaussian():\n            return None\n"
CURVE = "        case Gaussian():\n            return order /"

PAIR = '  toy: { ...SUM, events: ["zcdp"], bounds: ["renyi"] },\n  exponential: CHOICE,\n'
ROW = '        "toy": Pair("l2", (Zcdp,), (RENYI,)),\n        "exponential": _CHOICE,\n'

# (file, what stands there, what stands there then), by the numbers of the recipe
STEPS = {
    1: [("dpserve_verify/privacy/events.py", "SimpleEvent = BoundedRange | PureDp | Gaussian\n", EVENT)],
    2: [
        ("dpserve_verify/privacy/second_opinion.py", "PureDp, RepeatAndSelect\n", "PureDp, RepeatAndSelect, Zcdp\n"),
        ("dpserve_verify/privacy/second_opinion.py", PURE, PURE.replace("Gaussian()", "Gaussian() | Zcdp()")),
        (
            "dpserve_verify/privacy/second_opinion.py",
            CURVE,
            f"        case Zcdp():\n            return order * float(event.rho)\n{CURVE}",
        ),
    ],
    3: [("dpserve_verify/certificates/predicate.py", "Simple = EpsilonEvent | GaussianEvent\n", FORM)],
    4: [
        ("serving/pages/static/verify_claim.js", "gaussian: GAUSSIAN }", f"gaussian: GAUSSIAN, zcdp: {SCRIPT} }}"),
        ("serving/pages/static/verify_claim.js", "  exponential: CHOICE,\n", PAIR),
    ],
    5: [
        ("dpserve_verify/privacy/pairs.py", "Release, RepeatAndSelect\n", "Release, RepeatAndSelect, Zcdp\n"),
        ("dpserve_verify/privacy/pairs.py", '        "exponential": _CHOICE,\n', ROW),
    ],
}

KNOWN = """
import json
from decimal import Decimal
from fractions import Fraction

import accountant
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.certificates.plain_words import event_text
from dpserve_verify.certificates.predicate import MechanismForm, json_schema
from accountant.privacy.claims import claim
from dpserve_verify.privacy.events import Plan, PureDp, Release, RepeatAndSelect, Zcdp, plan_from_json
from dpserve_verify.privacy.pairs import fault_of
from dpserve_verify.privacy.renyi import GRID, compose_rdp
from dpserve_verify.privacy.second_opinion import pure, renyi
from dpserve_verify.privacy.selection import geometric
from dpserve_verify.privacy.soundness import judge_claim
from training.tuning.ceilings import shape_of

event = Zcdp(Decimal("0.01"))
release = Release("a sum", "toy", "l2", 3, event)
plan = Plan(((release, 7), (Release("a choice", "permute-and-flip", "range", 1, PureDp(Decimal("0.02"))), 2)))
assert plan_from_json(plan.to_json()) == plan
assert fault_of(plan) is None
found = claim(plan, Decimal("1e-6"))
assert found.bound == "renyi"
for order in GRID:
    assert 0 <= compose_rdp(((event, 1),), order) - 1e9 * renyi(event, order) <= 3
assert pure(event) is event.pure is None
order = decimal_string(Decimal(repr(found.order)))
stored = {"epsilon": decimal_string(found.epsilon), "delta": "0.000001", "bound": "renyi", "order": order}
judge_claim(plan, Budget(found.epsilon, Decimal("1e-6")), stored)

selection = RepeatAndSelect(geometric(Decimal("0.1")), ((event, 2),))
both = Plan(((release, 1), (Release("the best", "private-selection", "run", 1, selection), 1)))
forms = [MechanismForm.read({**run, "library": "toy"}) for run in both.to_json()]
assert [event_text(form.event) for form in forms] == [
    "zcdp with rho 0.01",
    "the best of a random number (truncated-negative-binomial) of runs of 2 x zcdp with rho 0.01",
]
assert "ZcdpEvent" in json_schema()["$defs"]

ceiling = shape_of([plan], pure=False).at(Decimal("1.001"))
assert 0.99 < ceiling.load(plan) <= 1
for order in (1.5, 2, 30, 1000):  # what the ceiling promises
    assert compose_rdp(plan.events, order) <= compose_rdp(((ceiling.event, ceiling.count),), order) + 20

line = lambda order: {"order": str(order), "epsilon": decimal_string(Decimal(compose_rdp(plan.events, order)) / 10**9)}
print(json.dumps({
    "house": accountant.__file__,
    "claim": {
        "variant": "approximate", "pure": None, "relation": "add-remove",
        "unit": {"contributions": 1}, "rdp": [line(2), line(30.5)], **stored,
    },
    "mechanisms": plan.to_json(),
}))
"""
BROWSER = """
import { checkClaim } from "./serving/pages/static/verify_claim.js";
import { readFileSync } from "node:fs";
console.log(JSON.stringify(checkClaim(JSON.parse(readFileSync("predicate.json", "utf8")))));
"""


def take(house: Path, step: int) -> None:
    for name, before, after in STEPS[step]:
        text = (house / name).read_text()
        assert text.count(before) == 1, (name, before)
        (house / name).write_text(text.replace(before, after))


def run(house: Path, *command: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, timeout=300)


def types(house: Path) -> str:
    options = ("--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(house / ".types"))
    return run(house, sys.executable, "-m", "mypy", *options, "dpserve_verify/privacy/second_opinion.py").stdout


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the recipe edits."""
    folder = tmp_path_factory.mktemp("house")
    for room in ("accountant", "dpserve_verify"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    static = "serving/pages/static"
    shutil.copytree(ROOT / static, folder / static, ignore=shutil.ignore_patterns("vendor"))
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_the_recipe_names_the_files_that_the_walk_edits():
    text = (ROOT / "docs" / "extending.md").read_text().split("## Add a privacy event")[1].split("\n## ")[0]
    for step, edits in STEPS.items():
        line = text.split(f"\n{step}. ")[1]
        assert {f"`{name}`" for name, _, _ in edits} == {line.split(":")[0]}


@pytest.mark.slow
@pytest.mark.system("node")
def test_a_new_event_is_five_files(house):
    take(house, 1)
    forgotten = types(house)
    assert forgotten.count('Argument 1 to "assert_never" has incompatible type "Zcdp"') == 2, forgotten
    take(house, 2)
    assert types(house).startswith("Success"), types(house)
    take(house, 3)
    take(house, 5)
    done = run(house, sys.executable, "-c", KNOWN, path=f"{house}{os.pathsep}{ROOT}")
    assert done.returncode == 0, done.stderr
    predicate = json.loads(done.stdout)
    assert predicate.pop("house").startswith(str(house))
    (house / "predicate.json").write_text(json.dumps(predicate))
    (house / "check.js").write_text(BROWSER)
    assert "an answer of the kind zcdp is not known" in run(house, "node", "check.js").stderr
    take(house, 4)
    told = json.loads(run(house, "node", "check.js").stdout)
    assert told["bound"] == "renyi"
    assert abs(told["epsilon"] - float(predicate["claim"]["epsilon"])) < 1e-5


@pytest.mark.system("node")
@pytest.mark.parametrize(
    ("event", "sensitivity", "words"),
    [
        ({"type": "pure-dp", "epsilon": "50"}, "1", "gaussian bound is not proved for permute-and-flip"),
        ({"type": "gaussian", "noise_multiplier": "1"}, "2", "the Gaussian bound does not apply"),
    ],
)
def test_the_browser_gives_no_gaussian_claim_to_what_is_not_gaussian_on_its_grid(tmp_path, event, sensitivity, words):
    static = ROOT / "serving" / "pages" / "static"
    claimed = {"variant": "approximate", "epsilon": "0.1", "delta": "0.000001", "bound": "gaussian", "order": None}
    claimed |= {"pure": event.get("epsilon"), "rdp": []}
    pair = ("discrete-gaussian", "l2") if event["type"] == "gaussian" else ("permute-and-flip", "range")
    drawn = dict(zip(("mechanism", "norm"), pair, strict=True))
    mechanisms = [{**drawn, "event": event, "count": 1, "sensitivity": sensitivity}]
    claimed |= {"relation": "add-remove", "unit": {"contributions": 1}}
    for name in ("verify_claim.js", "verify_formats.js"):
        shutil.copy(static / name, tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "predicate.json").write_text(json.dumps({"claim": claimed, "mechanisms": mechanisms}))
    (tmp_path / "check.js").write_text(BROWSER.replace("./serving/pages/static/", "./"))
    assert words in run(tmp_path, "node", "check.js").stderr
