"""Which learner `auto` is. One rule for all datasets, of public numbers alone: records, epsilon, delta, the relation,
rows of one unit of privacy, features, the kind of target, and its classes' shares where they are declared. How it was
found, and what it loses on datasets that did not choose it: studies/defaults/auto.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from models.features.features import CategoricalFeature, Feature
from training.learners.boosting.defaults import strength
from training.session.session import Public

if TYPE_CHECKING:
    from training.learners.base.private_learner import PrivateLearner
    from training.learners.boosting import lazybb, lazybb_tree
    from training.learners.ebm import ebm
else:  # a command that shows a dataset, or reads a schema, does without learners
    lazybb, lazybb_tree = later("training.learners.boosting.lazybb"), later("training.learners.boosting.lazybb_tree")
    ebm = later("training.learners.ebm.ebm")

FEW = 300  # strength below which 1-rules are ahead, whatever the features
CATEGORIES_FROM = 0.4  # share of the features from which curves are ahead of trees, whose public splits part them badly
CURVES_UP_TO = 50  # features; the noise of curves grows with them, that of a tree's choice hardly
MANY = 100  # features; of more of them some may well be useless
TREES_EACH = 40  # strength for each of many features from which trees, split by named ones, are ahead of 1-rules
RARE_FROM = 2_500  # strength times the declared share of the rarer class, from which they are: studies/defaults/rare.md
TREES_FROM = 3_000  # strength from which small trees are ahead of 1-rules where delta is 0
MANY_CLASSES_FROM = 1_000  # strength from which curves are, of three classes or more: studies/defaults/classes.md
CHOICES: Mapping[str, Callable[[], PrivateLearner]] = {
    "lazybb": lambda: lazybb.LazyBB(),
    "lazybb-tree": lambda: lazybb_tree.LazyBBTree(),
    "ebm": lambda: ebm.DPEBMClassifier(),
}


@dataclass(frozen=True)
class Choice:
    """A learner by its name, and why it is the one, in public words."""

    learner: str
    why: str


def choose(public: Public) -> Choice:
    """Choose the learner. InputError, the chosen learner's own, where it does not take such a job."""
    if public.shared:
        choice = Choice("ebm", "institutions are asked for sums alone, and all that it asks are sums: ebm")
    elif public.classes is None:
        choice = Choice("ebm", "the target is a number: ebm")
    elif len(public.classes) != 2:
        choice = _of_many(public, len(public.classes))
    else:
        choice = _of_two(public)
    CHOICES[choice.learner]().check(public)
    return choice


def _of_two(public: Public) -> Choice:
    """Choose the learner for two classes."""
    power, words, features = strength(public), many_categories(public.features), len(public.features)
    per_feature, rarer = power / features, power * min(public.prevalence, default=1.0)
    signal = f"records x epsilon is about {power:,.0f}"
    least = TREES_FROM if public.pure else FEW
    if power < least:
        kind = ", delta 0" if public.pure else ""
        return Choice("lazybb", f"few rows for this epsilon{kind} ({signal}, below {least:,}): lazybb")
    if features > MANY and per_feature < TREES_EACH:
        each = f"{signal}, {per_feature:,.0f} for each feature, below {TREES_EACH}"
        return Choice("lazybb", f"many features for so few rows ({each}): lazybb")
    if rarer < RARE_FROM and public.prevalence:
        return Choice(
            "lazybb", f"few rows of the rarer class ({signal}, of it {rarer:,.0f}, below {RARE_FROM:,}): lazybb"
        )
    learner = "ebm" if words and features <= CURVES_UP_TO and not public.pure and _curves(public) else "lazybb-tree"
    kind = "delta 0" if public.pure else f"{'many' if words else 'few'} categories of {features} features"
    return Choice(learner, f"enough rows for this epsilon, {kind} ({signal}, from {least:,} on): {learner}")


def many_categories(features: Sequence[Feature]) -> bool:
    """Return whether so many of them are categories; truths are none, for they part rows as numbers do."""
    return sum(isinstance(feature, CategoricalFeature) for feature in features) >= CATEGORIES_FROM * len(features)


def _of_many(public: Public, classes: int) -> Choice:
    """Choose the learner for three classes or more."""
    power, least = strength(public), TREES_FROM if public.pure else MANY_CLASSES_FROM
    learner = "ebm" if power >= least and _curves(public) else "lazybb"
    rows, where = ("few rows", "below") if power < least else ("enough rows", "from")
    signal = f"records x epsilon is about {power:,.0f}, {where} {least:,}"
    return Choice(learner, f"{classes} classes, {rows} for this epsilon ({signal}): {learner}")


def _curves(public: Public) -> bool:
    """Return whether `ebm` takes such a job: not at delta 0 on a dataset that has one, for instance."""
    try:
        CHOICES["ebm"]().check(public)
    except InputError:
        return False
    return True
