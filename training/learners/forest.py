"""Random forests whose splits are public: the baselines RF-L and RF-E of Nock and Henecka, after Fletcher and Islam,
"Differentially private random decision forests using smooth sensitivity" (with global sensitivity, as the former).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.forms.trees import TreeEnsemble
from training.learners.base.checks import check_whole, check_word
from training.learners.base.class_weights import check_balance, class_weights
from training.learners.base.cut_points import Cutting, Recut, counted_numbers, cut_numbers, cutting
from training.learners.base.private_learner import PrivateClassifier
from training.learners.boosting.defaults import strength
from training.learners.boosting.noisy_leaves import (
    ClassWeights,
    LeafLabels,
    LeafResiduals,
    check_two_classes,
    leaf_noise,
    norm_of,
    per_leaf,
    per_row,
    shares,
    stated_epsilon,
)
from training.learners.boosting.tree_queries import Cuts, gains_by_cuts, public_cuts, slots, split_tests
from training.rows.statistics.tree_rows import Grown
from training.session.session import Public, Releaser

MAX_TREES = 1000
MAX_DEPTH = 8
LEAF_ONE = 256  # a log-odds of 1 in a leaf
GATHER = 4.0  # random trees are weak: chances are further from the base rate than the mean of their log-odds says
MOST_SAID = 1 << 23  # by all trees together, far beyond what rows can say; float32 adds it up exactly
VOTES = 4.0  # log-odds of all trees' votes together, where they agree
NEVER = 1e-12  # the least share of a class: fewer than one row in any number that can be held
COUNT_ONE = 4096  # a row in the counts: on a fine grid sqrt(2) is 1.4143, and not 2
RESIDUAL_ONE = 1 << 20  # the largest residual; how what follows was found: studies/owners/tree_sums.py
CLIP = 0.5  # of residuals, in chances: what a row adds at first, when chances are even
BOOSTED_TREES, BOOSTED_DEPTH = 600, 6
FINDING = 0.05  # of the budget, for the counts that cut points are found by
MOST_BINS = 64
NAMED, ALIKE = 10, 0.5  # of trees, how often their tests move to the features that tell; that share of tests does not
SURE = 2.0  # deviations of noise from which a leaf is larger than the mean
MOST_RATE, MOST_NOISE = 0.3, 1.0  # of a step; in logits, what noise may add to a score in all trees together

Integers = NDArray[np.int64]


@dataclass(eq=False, repr=False)
class DPRandomForestClassifier(PrivateClassifier):
    """Trees whose splits are drawn from a fixed public table; the whole budget goes to their leaves. Two classes.

    Parameters, all public; None stands for a public rule:

    - `trees`: how many, 1 to 1000. Default: None.
    - `depth`: tests on every path of a tree, 1 to 8. Default: None.
    - `leaf`: "counts" (RF-L: noisy class counts in every leaf, Laplace where delta is 0 and else Gaussian; the leaf
      says the log-odds of the smoothed counts) or "label" (RF-E: private selection of the class of every leaf,
      which is its vote); or "residuals": trees are boosted, and a leaf says the noisy sum of what those before it
      leave to explain, at cut points that noisy counts find. Default: "counts".
    - `balance`: of classes as in `lazybb`, 0 to 1, for leaf "label" alone. Default: None, which is 0.

    The leaves of a tree are disjoint, so a tree costs one release. Under add/remove counts move by 1 in L1 and L2, and
    selection has range 1; under replace-one by 2 and sqrt(2), and range 2. Sums of residuals move by one residual, and
    by two. (The paper splits the budget evenly "among the leaves": it needs to be split among trees alone.) What a
    forest of counts adds to the base rate, which they tell as well, is a multiple of its leaves' mean distance from it
    in log-odds.
    """

    name: ClassVar[str] = "forest"

    trees: int | None = None
    depth: int | None = None
    leaf: Literal["counts", "label", "residuals"] = "counts"
    balance: float | None = None

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter is out of range, or the target has not two classes."""
        check_two_classes(self.name, public)
        check_word("leaf", self.leaf, ("counts", "label", "residuals"))
        check_balance(self.balance, public)
        if self.leaf != "label" and self.balance:
            raise InputError(f"balance={self.balance}: with leaf label alone; {self.leaf} weigh classes by their rows")
        if self.leaf != "label":
            public.check_priced(f"forest adds Gaussian noise to its {self.leaf}")
        if self.trees is not None:
            check_whole("trees", self.trees, 1, MAX_TREES)
        if self.depth is not None:
            check_whole("depth", self.depth, 1, MAX_DEPTH)

    def rounds_for(self, public: Public) -> int:
        """Return the number of trees: `trees`, or by the public rule."""
        if self.trees is not None:
            return self.trees
        return BOOSTED_TREES if self.leaf == "residuals" else trees_of(public)

    def learn(self, session: Releaser) -> TreeEnsemble:
        """Make one release for the leaves of each public tree."""
        if self.leaf == "residuals":
            return self._boosted(session)
        public, tests = session.public, split_tests(session.public.features)
        depth, number = self.depth or depth_of(public), self.rounds_for(public)
        forest = [public_cuts(tests, tree, depth) for tree in range(number)]
        answered = self._labelled if self.leaf == "label" else self._counted
        grown, constant, link = answered(session, forest)
        assert public.classes is not None
        trees = tuple(tree.tree for tree in grown)
        return TreeEnsemble(public.features, public.target, public.classes, trees, constant, link)

    def _counted(self, session: Releaser, forest: Sequence[Cuts]) -> tuple[list[Grown], int, float]:
        """Grow trees whose leaves say how far their log-odds are from those of all rows, by the sum of what was
        released.
        """
        public, noise = session.public, leaf_noise(session.public, float(session.unit))
        counts = [ClassWeights(cuts, (), (COUNT_ONE,), COUNT_ONE, norm_of(public)) for cuts in forest]
        noisy: list[Any] = [session.release(count, noise) for count in counts]
        moved = counts[0].sensitivity(public.relation) / COUNT_ONE * public.contributions
        smoothing = max(1.0, noise.event.deviation * public.widening * moved)
        total = np.sum([each.reshape(-1, 2).sum(axis=0) for each in noisy], axis=0)
        share = shares(total, COUNT_ONE, smoothing)[0]
        base = _logit(share)
        most = MOST_SAID // len(forest)
        grown = []
        for cuts, each in zip(forest, noisy, strict=True):
            says = (round(LEAF_ONE * (_logit(q) - base)) for q in shares(each, COUNT_ONE, smoothing, share))
            grown.append(Grown(cuts, tuple(max(-most, min(most, value)) for value in says)))
        return grown, round(LEAF_ONE * base * len(forest) / GATHER), GATHER / (LEAF_ONE * len(forest))

    def _boosted(self, session: Releaser) -> TreeEnsemble:
        """Grow tree after tree by sums of residuals, each a step of the gradient of the log loss, as long as the rows
        of a mean leaf, of a larger one its own, and the noise of all trees together allow. Later trees test more often
        what earlier sums tell of.
        """
        number, depth = self.rounds_for(session.public), self.depth or BOOSTED_DEPTH
        noise = leaf_noise(session.public, float(session.unit))
        session = _cut(session, number)
        public, tests = session.public, split_tests(session.public.features)
        trees: tuple[Grown, ...] = ()
        bound, step, most = 0, 0.0, min(LEAF_ONE, MOST_SAID // number)
        gains, named, every = np.zeros((2, len(public.features))), tuple[int, ...](), -(-number // NAMED)
        for tree in range(number):
            if tree and tree % every == 0:
                named = slots(np.sqrt(np.maximum(gains[0] / np.maximum(gains[1], 1), 0)), ALIKE)
            table = np.asarray(RESIDUAL_ONE * residuals(bound), np.int64)
            asked = LeafResiduals(public_cuts(tests, tree, depth, named), trees, table, RESIDUAL_ONE, norm_of(public))
            sums, counts = np.broadcast_to(session.release(asked, noise), asked.size).reshape(2, -1)
            moved = asked.sensitivity(public.relation) * public.contributions * public.widening
            deviation = noise.event.deviation * moved
            gains += gains_by_cuts(sums, asked.cuts, gains.shape[1], deviation)
            step = step or LEAF_ONE * _step(public, deviation / asked.one, sums.size, number)
            large = np.maximum((counts - SURE * deviation) / asked.count * sums.size / public.records, 1)
            says = np.clip(np.rint(step * sums / large / RESIDUAL_ONE), -most, most).astype(np.int64)
            trees = (*trees, Grown(asked.cuts, tuple(says.tolist())))
            bound += int(np.abs(says).max())
        assert public.classes is not None
        grown = tuple(tree.tree for tree in trees)
        return TreeEnsemble(public.features, public.target, public.classes, grown, 0, 1 / LEAF_ONE)

    def _labelled(self, session: Releaser, forest: Sequence[Cuts]) -> tuple[list[Grown], int, float]:
        grown, link, weighed = [], VOTES / len(forest), class_weights(session.public, self.balance)
        for cuts in forest:
            picks = session.release(LeafLabels(cuts, weighed), per_row(session.public, stated_epsilon(session.unit)))
            grown.append(Grown(cuts, tuple(2 * pick - 1 for pick in per_leaf(picks, cuts))))
        return grown, round(weighed.offsets[0] / link) if weighed else 0, link


def cutting_of(public: Public) -> Cutting:
    """Return where numbers are cut for boosted trees, by the public rule."""
    return cutting(public, strength(public), MOST_BINS, "auto", None)


def _cut(session: Releaser, trees: int) -> Releaser:
    """Return the session in bins found by noisy counts, which have FINDING of the budget together, where the public
    rule says so.
    """
    public, cuts = session.public, cutting_of(session.public)
    if cuts.where == "declared":
        return session
    share = FINDING / (1 - FINDING) * trees / (2 * counted_numbers(public))
    noise = leaf_noise(public, float(session.unit) * (share if public.pure else sqrt(share)))
    return Recut(session, cut_numbers(session, cuts, noise, norm_of(public), COUNT_ONE))


def residuals(bound: int) -> NDArray[np.float64]:
    """Return 1 less the chance of a row's class by its margin + bound, clipped, in units of CLIP: (2 bound + 1,)."""
    margins = np.arange(-bound, bound + 1) / LEAF_ONE
    return np.asarray(np.minimum(1 / (1 + np.exp(margins)), CLIP) / CLIP)


def _step(public: Public, deviation: float, leaves: int, trees: int) -> float:
    """Return the logits that a row's whole residual adds to its leaf; `deviation`: of the noise of a sum of them."""
    newton = 4 * CLIP * leaves / public.records
    return newton * min(MOST_RATE, MOST_NOISE / (newton * deviation * sqrt(trees)))


def _logit(share: float) -> float:
    """Return its log-odds; a share that rounds to 0 or 1 counts as next to it."""
    share = min(max(share, NEVER), 1 - NEVER)
    return log(share / (1 - share))


def trees_of(public: Public) -> int:
    """Return the public rule: every tree takes its share of the budget."""
    return int(min(100, max(7, round(strength(public) ** 0.4))))


def depth_of(public: Public) -> int:
    """Return the public rule: more rows or more epsilon bear more regions."""
    return int(min(MAX_DEPTH, max(3, round(0.5 * log(1 + strength(public))))))
