"""Which learner `auto` is. One rule for all datasets, of public numbers alone: records, epsilon, delta, the relation,
rows of one unit of privacy, features, the kind of target, and its classes' shares where they are declared. How it was
found, and what it loses where it is wrong: docs/results/auto.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accountant.errors import InputError
from models.features import CategoricalFeature, Feature
from training.learners import LEARNERS
from training.learners.boosting.defaults import strength
from training.session import Public

CURVES_FROM = 10_000  # strength from which `ebm` is ahead where more features are categories than not
TREES_EACH = 40  # strength for each feature below which public splits fall on useless ones too often
RARE_FROM = 2_500  # strength times the declared share of the rarer class, from which they are: docs/results/rare.md
TREES_FROM = 3_000  # strength from which small trees are ahead of 1-rules, on two classes


@dataclass(frozen=True)
class Choice:
    """A learner by its name, and why it is the one, in public words."""

    learner: str
    why: str


def mostly_categories(features: Sequence[Feature]) -> bool:
    """Whether more of them are categories than not; truths are none, for they part rows as numbers do."""
    return 2 * sum(isinstance(feature, CategoricalFeature) for feature in features) > len(features)


def choose(public: Public) -> Choice:
    """The rule. InputError, the chosen learner's own, where it does not take such a job."""
    if public.classes is None:
        found = Choice("ebm", "the target is a number: ebm")
    elif len(public.classes) != 2:
        found = Choice("lazybb", f"{len(public.classes)} classes: lazybb")
    else:
        power, each = strength(public), strength(public) / len(public.features)
        said = f"a strength of {power:,.0f}, about records x epsilon,"
        trees = Choice("lazybb-tree", f"{said} from {TREES_FROM:,} on: lazybb-tree")
        rarer = power * min(public.prevalence, default=1.0)
        rare = Choice("lazybb", f"{said} of which the rarer class has {rarer:,.0f}, below {RARE_FROM:,}: lazybb")
        few = Choice("lazybb", f"{said} of which each feature has {each:,.0f}, below {TREES_EACH}: lazybb")
        less = Choice("lazybb", f"{said} below {TREES_FROM:,}: lazybb")
        curves = Choice("ebm", f"{said} from {CURVES_FROM:,} on, and more features are categories than not: ebm")
        found = curves if power >= CURVES_FROM and mostly_categories(public.features) and _curves(public) else trees
        found = less if power < TREES_FROM else few if each < TREES_EACH else rare if rarer < RARE_FROM else found
    LEARNERS[found.learner]().check(public)
    return found


def _curves(public: Public) -> bool:
    """Whether `ebm` takes such a job: not without a delta, for instance."""
    try:
        LEARNERS["ebm"]().check(public)
    except InputError:
        return False
    return not public.pure
