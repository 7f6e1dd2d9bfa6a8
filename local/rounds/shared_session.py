"""Sums over rows that several institutions keep, each its own: what one of them asks of its rows is shared out, and
what comes back is the noisy sum over all of them.

Every institution runs the learner itself. What it asks next follows from answers alone, so all of them ask the same,
and nothing but numbers travels.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from accountant.noise.mechanisms import DiscreteGaussian, Mechanism
from dpserve_verify.certificates.releases import CLASS_WEIGHTS, PROFILE_PURPOSE
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import Plan, Release
from training.rows.partitions.rows import Rows
from training.session.session import Answers, Integers, Public, Session

# Purposes whose answer of all rows is the sum of the answers of parts. Scores of pairs are not: they add up sizes.
ADDING = (
    "records by true answer and what the model says",
    "count rows per bin",
    "count rows per cell of a pair",
    "count rows by class and score",
    "count rows per fine cell",
    "sum residuals per cell of pairs",
    "sum residuals per cell of pairs and class",
    "sum residuals per leaf",
    "sum residuals and count rows per leaf",
    "weigh the classes in every leaf",
    "sum residuals per leaf and class",
    "sum how chances follow the slope of scores",
    "sum squared residuals",
)


def check_adding(plan: Plan) -> None:
    """Raise InputError where a release of the plan is not a sum over rows with Gaussian noise: then nobody could draw
    it who sees shares alone.
    """
    for release, _ in plan.runs:
        if release.mechanism != DiscreteGaussian.name or release.norm != "l2":
            raise InputError(
                f"plan: {release.purpose!r} is drawn by {release.mechanism}; aggregators see shares of sums alone, and "
                "add Gaussian noise to them"
            )
        if CLASS_WEIGHTS.sub("", release.purpose) not in ADDING and not PROFILE_PURPOSE.fullmatch(release.purpose):
            raise InputError(
                f"plan: {release.purpose!r} of all rows is not the sum of its answers of parts, so institutions cannot "
                "be asked for it"
            )


class SharedSession(Session):
    """Plays a plan on the rows of one institution; None where every answer is there. `exchange`: sends shares of an
    exact answer, and returns the noisy sum over all institutions.
    """

    def __init__(
        self, public: Public, unit: Decimal, plan: Plan, rows: Rows | None, answers: Answers,
        exchange: Callable[[Integers], Integers],
    ) -> None:  # fmt: skip
        check_adding(plan)
        super().__init__(public, unit, plan, rows, answers=answers)  # type: ignore[arg-type]  # none is asked
        self._exchange = exchange

    def draw(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Any:
        """Have the two aggregators draw."""
        return self._exchange(np.ascontiguousarray(exact, np.int64))
