"""Digests of learners: what tells whether a page's figures are of today's learner and of its defaults of today.

A learner is fitted without noise (every sum as it is, every selection the best) on a small made-up table. Its digest
is of the releases that it plans, with their prices, and of its predictions. So it changes when a default, a price or
what a learner makes of its answers changes, and neither with the words of a plan nor with how noise is drawn. A page
that cannot be made anew is named in OLDER, and says so itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from accountant.noise.objective import RELEASED, ObjectivePerturbation
from dpserve_verify.privacy.events import Release, event_to_json
from training.calibration.calibrate import rehearse
from training.learners.base.private_learner import PrivateLearner
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import columns_of
from training.session.session import Public, Session

ROWS = 2_000
SHOWN = 100  # rows whose predictions are in a digest
DIGITS = 4  # of a prediction: far more than machines differ by, far less than a change of a learner makes
BUDGETS = ("0.1", "2", "25")  # epsilon: strengths of 200 to 50,000
SCHEMA = """
target: {name: target, %s}
records: 2000
features:
  wave: {type: numeric, range: [0, 100], bins: 20}
  slope: {type: numeric, range: [-50, 50], bins: 20}
  spike: {type: numeric, range: [0, 1000], bins: 20}
  colour: {type: categorical, values: [a, b, c, d, e]}
  town: {type: categorical, values: [%s]}
missing: own-bin
"""
TARGETS = {"classes": "classes: [no, yes]", "number": "range: [-100, 100]"}

EARLIER_BDPE = (
    "Of Table 4, sonar, qsar, page_blocks, mice, firmteacher and eeg were made at 57018d6, before `bdpe` made at most "
    "50 trees by default."
)
BEFORE_OCTAVES = (
    "at 08e7b48d, before found cut points followed the rows into a range's octaves and two values were one feature."
)
# Pages whose lines are not all of today's learners: of the lines with this text in their name, the words on the page.
OLDER: dict[str, dict[str, str]] = {
    "lazybb/paper.md": {"|defaults|": f"The default rule's columns were measured {BEFORE_OCTAVES}"},
    "dpebm/dpebm.md": {" ": f"All of this page was measured {BEFORE_OCTAVES}"},
    "bdpe/bdpe.md": {
        "'lazybb-tree'": f"The lines of `lazybb-tree` were measured {BEFORE_OCTAVES}",
        **dict.fromkeys(("'sonar'", "'qsar'", "'page_blocks'", "'mice'", "'firmteacher'", "'eeg'"), EARLIER_BDPE),
        **dict.fromkeys((", 5, 0.5, 10)", ", 10, 0.5, 10)"), "So were nearly all ensembles of 5 and 10 trees."),
    },
    "owners/local-paper.md": {
        " ours": "The project's own learners on this page were measured at 8062e20, before later changes of campaigns.",
    },
}


class WithoutNoise(Session):
    """Plays a plan with the exact answers. On made-up rows alone: nothing of it is private."""

    def draw(self, mechanism: Any, exact: Any, asked: Release) -> Any:
        """Return the best candidate, the sums themselves, or the minimum of the loss."""
        if isinstance(mechanism, ObjectivePerturbation):
            theta, bits = next(iter(exact.candidates(np.zeros(len(exact), np.int64), mechanism.ridge)))
            return np.array([int(each) >> bits - RELEASED for each in theta], np.int64)
        if mechanism.norm == "range":
            return exact.argmax(axis=-1) if exact.ndim > 1 else int(exact.argmax())
        return exact


@cache
def table(target: str) -> tuple[Schema, pa.Table]:
    """Return a schema and rows from arithmetic alone, which are the same on every machine."""
    schema = parse_schema((SCHEMA % (TARGETS[target], ", ".join(f"t{k}" for k in range(40)))).encode())
    at = np.arange(ROWS)
    wave, slope, spike = at * 37 % 101, at * 53 % 97 - 48, at * at % 1009 % 1000
    colour, town = at * 29 % 5, at * 31 % 43 % 40
    score = wave + slope * 1.5 + np.where(spike > 700, 60, -20) + colour * 15 + town % 7 * 6 + at * 71 % 83 - 190
    answers = np.where(score > 0, "yes", "no") if target == "classes" else np.clip(score / 3, -100, 100)
    columns = {"wave": wave + 0.0, "slope": slope + 0.0, "spike": spike + 0.0}
    columns |= {"colour": np.array(list("abcde"))[colour], "town": np.char.add("t", town.astype(str))}
    return schema, pa.table({**columns, "target": answers})


def digest(learner: PrivateLearner, target: str = "classes") -> str:
    """Return the digest of a learner with its parameters at its own budget, calibrated as a fit calibrates it."""
    learner.schema = table(target)[0]
    public, rows = made_up(learner, target)
    recipe = learner.recipe(public)
    return digest_of_fit(learner, public, recipe.unit, rows, target)


def made_up(learner: PrivateLearner, target: str = "classes") -> tuple[Public, Rows]:
    """Return what is public of the made-up table by this learner's budget and relation, and its rows."""
    schema, rows = table(target)
    learner.schema = schema
    _, public, packed = learner.declared(rows.drop(["target"]), np.asarray(rows["target"]))
    return public, packed


def digest_of_fit(learner: PrivateLearner, public: Public, unit: Decimal, rows: Rows, target: str = "classes") -> str:
    """Return the digest of a fit at this unit."""
    plan = rehearse(learner, public, unit)
    session = WithoutNoise(public, unit, plan, rows)
    ensemble = learner.learn(session)
    session.close()
    schema, columns = table(target)
    raw = columns_of(schema, columns.slice(0, SHOWN))
    said: Any = ensemble.probabilities(raw)[:, -1] if target == "classes" else ensemble.predict(raw)
    releases = [[each.norm, str(each.sensitivity), event_to_json(each.event), count] for each, count in plan.runs]
    return join([json.dumps(releases, sort_keys=True), *(f"{float(one):.{DIGITS}g}" for one in said)])


def join(parts: Iterable[str]) -> str:
    """Return one digest of several."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def stale(lines: Iterable[Mapping[str, Any]], today: Callable[[Mapping[str, Any]], str | None]) -> list[Any]:
    """Return the lines whose digest is not today's; `today` gives None for a line that no learner of ours made."""
    return [line for line in lines if (now := today(line)) is not None and line.get("digest") != now]


def older(page: str) -> str:
    """Return the words of a page on lines which could not be made anew, after a blank; "" where there are none."""
    return "".join(f" {words}" for words in dict.fromkeys(OLDER.get(page, {}).values()))
