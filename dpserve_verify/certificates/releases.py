"""The closed list of what a plan may ask: what each release is for, as the sentences of a certificate need it.

A learner that asks something new adds its purpose here, and says what the certificate must tell of it. What is not on
the list is refused when the job is planned, before anything is charged.
"""

from __future__ import annotations

import re
from enum import StrEnum

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.declared import own_kind
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.pairs import fault_of


class ReleaseKind(StrEnum):
    """What a release is for.

    MODEL: numbers that the model is made of. CUT_POINTS: where numbers are cut. ORDERS: in which order the values of a
    category stand. START: whether the public model that boosting begins from is left. TUNING: the best of a random
    number of runs, whose own releases are in its price. REPORT: of one owner. SHARED_SUM: of what all owners sent.
    EVALUATION and PROFILE: counts that a signed statement is made of. VOUCHED: a model that a program made which read
    rows, at a price that is the word of who admitted it.
    """

    MODEL = "model"
    CUT_POINTS = "cut points"
    ORDERS = "orders"
    START = "start"
    TUNING = "tuning"
    REPORT = "report"
    SHARED_SUM = "shared sum"
    EVALUATION = "evaluation"
    PROFILE = "profile"
    VOUCHED = "vouched"


OUTSIDE_COUNTS = "count rows per cell, as a learner of others asks"
OUTSIDE_SUMS = "sum entries of tables over rows, as a learner of others asks"
OUTSIDE_CHOICE = "select a table by its sum over rows, as a learner of others asks"
OUTSIDE_TOTALS = "sum the target per cell, as a learner of others asks"
OUTSIDE_LEAVES = "count rows per leaf of trees, as a learner of others asks"
OUTSIDE_LEAF_TOTALS = "sum the target per leaf of trees, as a learner of others asks"
OUTSIDE_FURTHEST = "select the histogram that is furthest from what is given, as a learner of others asks"
OUTSIDE = (
    OUTSIDE_COUNTS, OUTSIDE_SUMS, OUTSIDE_CHOICE, OUTSIDE_TOTALS, OUTSIDE_LEAVES, OUTSIDE_LEAF_TOTALS,
    OUTSIDE_FURTHEST,
)  # fmt: skip
VOUCHED = "run a whole program that reads rows, at the price that its voucher declares"
PURPOSES = {
    VOUCHED: ReleaseKind.VOUCHED,
    **dict.fromkeys(OUTSIDE, ReleaseKind.MODEL),
    "weigh the classes in every leaf": ReleaseKind.MODEL,
    "select the class of every leaf by its rows": ReleaseKind.MODEL,
    "select the vote of every leaf": ReleaseKind.MODEL,
    "select a 1-rule by weighted agreement": ReleaseKind.MODEL,
    "select a 1-rule in every leaf by weighted agreement": ReleaseKind.MODEL,
    "select a split in every leaf by M-alpha risk": ReleaseKind.MODEL,
    "select a split in every leaf by error": ReleaseKind.MODEL,
    "select a split in every leaf by gini": ReleaseKind.MODEL,
    "select a split of any leaf by error": ReleaseKind.MODEL,
    "select a split of any leaf by gini": ReleaseKind.MODEL,
    "count rows per bin": ReleaseKind.MODEL,
    "count rows per cell of a pair": ReleaseKind.MODEL,
    "count rows by class and score": ReleaseKind.MODEL,
    "score pairs of features": ReleaseKind.MODEL,
    "sum residuals per cell of pairs": ReleaseKind.MODEL,
    "sum residuals per cell of pairs and class": ReleaseKind.MODEL,
    "sum residuals per leaf": ReleaseKind.MODEL,
    "sum residuals per leaf and class": ReleaseKind.MODEL,
    "sum how chances follow the slope of scores": ReleaseKind.MODEL,
    "sum squared residuals": ReleaseKind.MODEL,
    "sum residuals and count rows per leaf": ReleaseKind.MODEL,
    "compare the public start with none": ReleaseKind.START,
    "minimise a convex loss": ReleaseKind.MODEL,
    "minimise a convex loss: how the loss curves": ReleaseKind.MODEL,
    "minimise a convex loss: how near the minimum is": ReleaseKind.MODEL,
    "count rows per fine cell": ReleaseKind.CUT_POINTS,
    "count rows per class and value of a category": ReleaseKind.ORDERS,
    "count the rows that the model tells right": ReleaseKind.TUNING,
    "the best by score of a random number of runs, each with a setting drawn from the grid": ReleaseKind.TUNING,
    "one report of one owner": ReleaseKind.REPORT,
    "sum of all owners' statistics": ReleaseKind.SHARED_SUM,
    "records by true answer and what the model says": ReleaseKind.EVALUATION,
    "records by how right each of two models is": ReleaseKind.EVALUATION,
}
PROFILE_PURPOSE = re.compile(
    r"rows by bin of [0-9]+ columns and [0-9]+ pairs of columns|how far [0-9]+ pairs of columns are from independent"
    r"|rows by cell of [0-9]+ chosen pairs of columns"
)
CLASS_WEIGHTS = re.compile(
    r", (rows of the first class weighing \S+ and of the second \S+|each class weighing [^,]+(, to the power \S+)? by "
    r"the declared shares)$"
)


def kind_of(purpose: str) -> ReleaseKind:
    """Look up what a release of this purpose is for. InputError where the closed list does not have it."""
    unweighted = CLASS_WEIGHTS.sub("", purpose)
    if PROFILE_PURPOSE.fullmatch(unweighted):
        return ReleaseKind.PROFILE
    if own_kind(unweighted):
        return ReleaseKind.MODEL
    if unweighted not in PURPOSES:
        raise InputError(
            f"purpose={purpose:.120}: is not on the closed list of what a plan may ask, so no certificate could say "
            "what it was for; add it to dpserve_verify/certificates/releases.py"
        )
    return PURPOSES[unweighted]


def kinds_of(plan: Plan) -> frozenset[ReleaseKind]:
    """Look up what the releases of a plan are for. InputError where the closed list does not have one, or where a price
    is not that of its mechanism.
    """
    fault = fault_of(plan)
    if fault is not None:
        raise InputError(fault)
    return frozenset(kind_of(release.purpose) for release, _ in plan.runs)


def weighs_classes(plan: Plan) -> bool:
    """Tell whether rows weigh by the declared shares of their classes in a release of the plan."""
    return any(CLASS_WEIGHTS.search(release.purpose) for release, _ in plan.runs)
