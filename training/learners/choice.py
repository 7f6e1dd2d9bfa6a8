"""Which learner `auto` is. One rule for all datasets, of public numbers alone: records, epsilon, delta, the relation,
rows of one unit of privacy, features, and the kind of target. How it was found, and what it loses on datasets that did
not choose it: studies/defaults/auto.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from models.features.features import share_of_categories
from training.learners.boosting.defaults import strength
from training.session.session import Public

if TYPE_CHECKING:
    from training.learners import forest
    from training.learners.base.private_learner import PrivateLearner
    from training.learners.boosting import lazybb, lazybb_tree
    from training.learners.ebm import ebm, trees_beside
else:  # a command that shows a dataset, or reads a schema, does without learners
    lazybb, lazybb_tree = later("training.learners.boosting.lazybb"), later("training.learners.boosting.lazybb_tree")
    ebm, trees_beside = later("training.learners.ebm.ebm"), later("training.learners.ebm.trees_beside")
    forest = later("training.learners.forest")

FEW = 200  # strength over the root of the features, below which 1-rules are ahead, whatever these are
CATEGORIES_FROM = (
    0.25  # share of the features from which curves are ahead of trees, whose public splits part them badly
)
CURVES_UP_TO = 50  # features; the noise of curves grows with them, that of a tree's choice hardly
MANY = 100  # features; of more of them some may well be useless
TREES_EACH = 40  # strength for each of many features from which trees, split by named ones, are ahead of 1-rules
TREES_FROM = 3_000  # strength from which small trees are ahead of 1-rules where delta is 0
MANY_CLASSES_FROM = 4_000  # strength times the classes from which curves are, of three or more (classes.md)
NUMBERS_FROM = 0.8  # share of numbers of more than two values from which trees are, of those that ask for sums alone
OF_SUMS: Mapping[str, Any] = {"leaf": "residuals", "trees": 250}  # as many as an evaluation over institutions takes
CHOICES: Mapping[str, Callable[[], PrivateLearner]] = {
    "lazybb": lambda: lazybb.LazyBB(),
    "lazybb-tree": lambda: lazybb_tree.LazyBBTree(),
    "ebm": lambda: ebm.DPEBMClassifier(),
    "ebm-trees": lambda: trees_beside.DPEBMTreesClassifier(),
    "forest": lambda: forest.DPRandomForestClassifier(**OF_SUMS),
}


@dataclass(frozen=True)
class Choice:
    """A learner by its name, and why it is the one, in public words; `settings`: those that are not its defaults."""

    learner: str
    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def choose(public: Public) -> Choice:
    """Choose the learner. InputError, the chosen learner's own, where it does not take such a job."""
    if public.shared:
        choice = _of_sums(public)
    elif public.classes is None:
        learner = "ebm-trees" if trees_beside.gains_by_trees(public) else "ebm"
        told = ", and there is enough to tell of it" if learner == "ebm-trees" else ""
        choice = Choice(learner, f"the target is a number{told}: {learner}")
    elif len(public.classes) != 2:
        choice = _of_many(public, len(public.classes))
    else:
        choice = _of_two(public)
    CHOICES[choice.learner]().check(public)
    return choice


def _of_sums(public: Public) -> Choice:
    """Choose the learner of institutions, among those that ask for sums alone."""
    power, features = strength(public), len(public.features)
    least = FEW * sqrt(features)
    numbers = sum(feature.cuts > 1 for feature in public.features)
    if len(public.classes or ()) == 2 and numbers >= NUMBERS_FROM * features and power >= least:
        why = f"{numbers} of {features} features are numbers, with enough rows for this epsilon"
        signal = f"records x epsilon is about {power:,.0f}, from {least:,.0f} on"
        return Choice("forest", f"institutions are asked for sums alone, and {why} ({signal}): forest", OF_SUMS)
    return Choice("ebm", "institutions are asked for sums alone, and all that it asks are sums: ebm")


def _of_two(public: Public) -> Choice:
    """Choose the learner for two classes."""
    power, features = strength(public), len(public.features)
    words, least = share_of_categories(public.features) >= CATEGORIES_FROM, FEW * sqrt(features)
    if public.pure:
        least = TREES_FROM
    signal, of = f"records x epsilon is about {power:,.0f}", "delta 0" if public.pure else f"{features} features"
    if power < least:
        return Choice("lazybb", f"few rows for this epsilon, {of} ({signal}, below {least:,.0f}): lazybb")
    if features > MANY and power / features < TREES_EACH:
        each = f"{signal}, {power / features:,.0f} for each feature, below {TREES_EACH}"
        return Choice("lazybb", f"many features for so few rows ({each}): lazybb")
    learner = "ebm" if words and features <= CURVES_UP_TO and not public.pure and _curves(public) else "lazybb-tree"
    kind = of if public.pure else f"{'many' if words else 'few'} categories of {of}"
    return Choice(learner, f"enough rows for this epsilon, {kind} ({signal}, from {least:,.0f} on): {learner}")


def _of_many(public: Public, classes: int) -> Choice:
    """Choose the learner for three classes or more."""
    power, least = strength(public), TREES_FROM if public.pure else MANY_CLASSES_FROM / classes
    learner = "ebm" if power >= least and _curves(public) else "lazybb"
    rows, where = ("few rows", "below") if power < least else ("enough rows", "from")
    signal = f"records x epsilon is about {power:,.0f}, {where} {least:,.0f}"
    return Choice(learner, f"{classes} classes, {rows} for this epsilon ({signal}): {learner}")


def _curves(public: Public) -> bool:
    """Return whether `ebm` takes such a job: not at delta 0 on a dataset that has one, for instance."""
    try:
        CHOICES["ebm"]().check(public)
    except InputError:
        return False
    return True
