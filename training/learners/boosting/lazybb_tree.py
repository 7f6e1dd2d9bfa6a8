"""LazyBB over small decision trees (Asadi, Carmosino, Jahanara, Rafiey and Salamatian, "Private boosted decision trees
via smooth re-weighting", Algorithms 1 and 2), with the corrected constants of docs/privacy/trees.md: weigh, split,
vote. What the paper has not is there too, and proved there: splits by weighted error, public splits, 1-rules as leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, sqrt
from typing import ClassVar, Literal

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import MAX_EPSILON, from_nano, nano
from models.forms.trees import TreeEnsemble
from models.parts.answers import Bends
from training.learners.base.checks import check_real, check_whole, check_word
from training.learners.boosting.defaults import Votes, link_of, strength, votes_of_trees
from training.learners.boosting.noisy_leaves import check_two_classes, per_leaf, per_row
from training.learners.boosting.smooth_boosting import (
    SmoothBooster,
    unit_of,
    weight_of_vote,
)
from training.learners.boosting.tree_queries import (
    Criterion,
    Cuts,
    LeafRules,
    LeafVotes,
    SplitGains,
    SplitTests,
    TreeScores,
    Weighing,
    level_of,
    public_cuts,
    split_of,
    split_tests,
)
from training.rows.statistics.tree_rows import Grown
from training.session.session import Public, Releaser

MAX_ROUNDS = 10_000
MAX_DEPTH = 6
MAX_LEAVES = 32
DEEPER_FROM = 10_000  # strength, see `defaults`
MANY = 100  # features; of more of them public splits would fall on useless ones too often
NAMING = 0.25  # of the rounds, where features are so many
VOTE_STEPS = 8  # votes cost so many eighths of a split: whole steps of one grid make for a tight composed claim


@dataclass(eq=False, repr=False)
class LazyBBTree(SmoothBooster):
    """Private boosting of small decision trees by smooth reweighting. Two classes.

    Parameters, all public; None or "auto" stands for a public rule:

    - `rounds`: how many trees, 1 to 10,000. Default: None.
    - `depth`: tests on every path, 1 to 6. Default: None: 3, and 4 from a strength of 10,000 on.
    - `criterion`: of a split: "public" (a fixed table, which costs nothing; the rule for levels that end in rules; of
      more than 100 features a table of those that the first quarter of the trees, a 1-rule each, have named),
      "error" (the weight that majorities get wrong) or "gini" (the paper's). Default: "auto".
    - `leaf`: "rule" (the last test and its two votes are selected together, in all leaves at the price of one
      selection) or "vote" (the paper's: the last test is a split like the others, then votes are selected).
      Default: "rule".
    - `growth`: "level" (one selection in every leaf of a level, at the price of one) or "best-first" (one selection
      per split over all leaves, until there are `leaves` of them). Default: "level".
    - `leaves`: of a tree grown best-first, 2 to 32. Default: None: as many as `depth` would have.
    - `label_share`: share of a tree's budget for the votes of `leaf` "vote", of its epsilon where delta is 0, else
      of its squared epsilons, which is what composes; 0.05 to 0.5. Default: 0.125.
    - `rate`, `reweighting`, `slope`, `density`, `threshold`, `weighting`, `decay`, `cuts`, `bins`, `balance`, `order`:
      as in `lazybb`. Its default rule holds here too, except for half its rate where weights are logistic, a rate of
      .15 from a strength of 3,000 on where a tenth of the features or more are no numbers of many values and, of 40,000
      records or more, at most 250 rounds at a rate of .4.
    """

    name: ClassVar[str] = "lazybb-tree"

    depth: int | None = None
    criterion: Literal["auto", "error", "gini", "public"] = "auto"
    leaf: Literal["rule", "vote"] = "rule"
    growth: Literal["level", "best-first"] = "level"
    leaves: int | None = None
    label_share: float = 0.125

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter is out of range, or the target has not two classes."""
        check_two_classes(self.name, public)
        self.check_smooth(public, MAX_ROUNDS)
        self._check_shape()

    def _check_shape(self) -> None:
        if self.depth is not None:
            check_whole("depth", self.depth, 1, MAX_DEPTH)
        check_word("criterion", self.criterion, ("auto", "error", "gini", "public"))
        check_word("leaf", self.leaf, ("rule", "vote"))
        check_word("growth", self.growth, ("level", "best-first"))
        check_real("label_share", self.label_share, "between 0.05 and 0.5", lambda x: 0.05 <= x <= 0.5)
        if self.leaves is not None:
            check_whole("leaves", self.leaves, 2, MAX_LEAVES)
            if self.growth != "best-first":
                raise InputError(
                    f"leaves={self.leaves}: only with growth best-first; those of levels follow from depth"
                )
        if self.growth == "best-first" and self.criterion == "public":
            raise InputError("criterion='public': nothing is best first; grow level by level")

    def votes_of(self, public: Public) -> Votes:
        """Return what the default rule is told of a tree's votes."""
        return votes_of_trees(public)

    def learn(self, session: Releaser) -> TreeEnsemble:
        """Learn tree after tree: its splits, then the votes of its leaves; in the end the counts by score."""
        settings = self.settings(session.public)
        session = self.cut(session, settings.rounds)
        public = session.public
        tests, reweighting = split_tests(public.features), self.reweighting_of(settings, public)
        trees: tuple[Grown, ...] = ()
        bound, weighed = 0, self.class_weights(public)
        for number in range(settings.rounds):
            weight = weight_of_vote(number, settings)
            naming = self._naming(public, settings.rounds)
            weighing = Weighing(reweighting, trees, bound, public, weighed)
            trees = (*trees, self._tree(session, tests, weighing, weight, naming))
            bound += weight
        link, offset = link_of(settings) / unit_of(settings), weighed.offsets[0] if weighed else 0.0
        constant = round(offset / link)
        bends: Bends = ()
        if self.threshold:
            link, constant, bends = self.bend(session, TreeScores(bound, link, trees), offset)
        grown = tuple(tree.tree for tree in trees)
        assert public.classes is not None
        return TreeEnsemble(public.features, public.target, public.classes, grown, constant, link, bends)

    def _tree(self, session: Releaser, tests: SplitTests, weighing: Weighing, weight: int, naming: int) -> Grown:
        cuts = self._cuts(session, tests, weighing, naming)
        last = LeafRules(tests, weighing, cuts) if self.leaf == "rule" else LeafVotes(weighing, cuts)
        epsilon = session.unit if self.leaf == "rule" else self._vote_epsilon(session)
        picks = session.release(last, per_row(session.public, epsilon))
        return last.grown(per_leaf(picks, cuts), weight)

    def _cuts(self, session: Releaser, tests: SplitTests, weighing: Weighing, naming: int) -> Cuts:
        criterion, splits = self._criterion(), self._splits(session.public)
        if criterion == "public":
            if len(weighing.trees) < naming:
                return ()
            return public_cuts(tests, len(weighing.trees), splits, named_features(weighing.trees[:naming]))
        cuts: Cuts = ()
        for _ in range(splits):
            gains = SplitGains(tests, weighing, cuts, criterion, self.growth == "best-first")
            if gains.best_first:
                cuts = split_of(cuts, tests, session.release(gains, session.public.selection(session.unit)))
            else:
                picks = session.release(gains, per_row(session.public, session.unit))
                cuts = level_of(cuts, tests, per_leaf(picks, cuts))
        return cuts

    def _criterion(self) -> Criterion | Literal["public"]:
        if self.criterion != "auto":
            return self.criterion
        return "public" if self.growth == "level" and self.leaf == "rule" else "error"

    def _naming(self, public: Public, rounds: int) -> int:
        """Return how many of the first trees are one 1-rule each, by whose features later ones are split: none but
        where splits are public and features so many that most may be useless.
        """
        named = self._criterion() == "public" and self.leaf == "rule" and len(public.features) > MANY
        return ceil(NAMING * rounds) if named else 0

    def _splits(self, public: Public) -> int:
        """Return the rounds of splitting per tree: levels, or splits one by one."""
        levels = (self.depth or depth_of(public)) - (self.leaf == "rule")
        return levels if self.growth == "level" else (self.leaves or 1 << min(levels, 5)) - 1

    def _vote_epsilon(self, session: Releaser) -> Decimal:
        if self._criterion() == "public":
            return session.unit
        odds = self.label_share / (1 - self.label_share) * self._splits(session.public)
        steps = max(1, round(VOTE_STEPS * (odds if session.public.pure else sqrt(odds))))
        return min(MAX_EPSILON, from_nano(max(1, nano(session.unit) * steps // VOTE_STEPS)))


def named_features(trees: Sequence[Grown]) -> tuple[int, ...]:
    """Return the features that these trees of one 1-rule test, in their order; a constant rule names none."""
    return tuple(sorted({tree.cuts[0].feature for tree in trees if len(set(tree.votes)) > 1}))


def depth_of(public: Public) -> int:
    """Return the public rule: more rows or more epsilon bear more regions."""
    return 3 if strength(public) < DEEPER_FROM else 4
