"""LazyBB over 1-rules (Asadi, Carmosino, Jahanara, Rafiey and Salamatian, "Private boosted decision trees via smooth
re-weighting", Algorithm 1), with the corrected constants of docs/privacy/trees.md. Reads like the paper: weigh,
pick, vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.forms.voting import VotingEnsemble
from models.parts.votes import Vote
from training.learners.base.class_weights import Balance, words_of
from training.learners.boosting.defaults import Defaults, link_of
from training.learners.boosting.leaf_rules import OneRules, one_rules
from training.learners.boosting.probabilities import ScoreCounts
from training.learners.boosting.reweighting import Reweighting
from training.learners.boosting.smooth_boosting import (
    SmoothBooster,
    unit_of,
    weight_of_vote,
)
from training.rows.partitions.rows import Rows
from training.session.session import Public, Releaser

MAX_ROUNDS = 5000


@dataclass(frozen=True)
class WeightedAgreement:
    """For every output k and 1-rule h: sum over rows of w y_k h(x), y_k = 1 in the class of k, else -1; w given by the
    margins y_k F_k of the votes released so far, of total weight at most `bound` for each output, and by class where
    classes are `weighed`, which makes no w larger.
    """

    rules: OneRules
    reweighting: Reweighting
    votes: Sequence[Vote]
    bound: int
    outputs: int
    public: Public
    weighed: Balance | None = None
    norm: ClassVar[str] = "range"

    @property
    def by_weight(self) -> bool:
        """Return whether rows may have weights: what a row weighs here follows from itself alone."""
        return not self.reweighting.reads_counts

    @property
    def purpose(self) -> str:
        """Return what a plan says of it, including class weights."""
        return f"select a 1-rule by weighted agreement{words_of(self.weighed)}"

    @property
    def size(self) -> int:
        """Count the answers: one for each output and candidate rule."""
        return self.outputs * self.rules.size

    def sensitivity(self, relation: Relation) -> int:
        """Return the sensitivity, of one output for all: every score of a row lies in -w..w, whichever outputs
        h and h' belong to.
        """
        return self.reweighting.sensitivity(relation, self.bound, self.public.records)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        bound, public = self.bound, self.public
        none = np.zeros(2 * bound + 1, dtype=np.int64)
        counts = rows.margin_counts(self.votes, bound)[0] if self.reweighting.reads_counts else none
        weights = self.reweighting.weights(bound, counts, public.records, public.relation)
        weights = weights if self.weighed is None else self.weighed.of(weights)
        return np.concatenate([self.rules.scores(sums) for sums in rows.signed_sums(self.votes, weights, bound)])


@dataclass(frozen=True)
class VoteScores(ScoreCounts):
    """By the scores of these votes."""

    votes: Sequence[Vote]

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return self.banded(rows.score_counts(self.votes, self.bound))


@dataclass(eq=False, repr=False)
class LazyBB(SmoothBooster):
    """Private boosting of 1-rules by smooth reweighting. Two classes, or K with one score each.

    Parameters, all public; None or "auto" stands for the default rule (training/learners/boosting/defaults.py):

    - `rounds`: 1 to 5000. Default: None.
    - `rate`: lambda per vote, above 0 and at most 10. Default: None.
    - `reweighting`: "auto", "scheduled" or "projected" (the paper's: equal votes, exponential weights, two
      classes). Default: "auto".
    - `slope`: of the schedule, 0 to 1. Default: None.
    - `density`: kappa of projected reweighting, above 0 and at most 1. Default: 0.5.
    - `threshold`: whether one more release, of noisy counts by class and score, places the decision threshold of
      two classes (the paper has it at 0) and says how steep probabilities are. Default: True.
    - `weighting`: "auto", "exponential" or "logistic". Default: "auto".
    - `decay`: vote t + 1 weighs (1 + t/5)^-decay, 0 (equal votes) to 1. Default: None.
    - `cuts`: of numbers: "auto", "declared", "even" (in `bins`, for nothing), or "found" (in as many, by noisy
      counts of rows per fine cell, at a twentieth of the budget or a tenth; beside them up to 24 values that many
      rows share stand alone). Default: "auto".
    - `bins`: of a number that is cut, 2 to 255. Default: None.
    - `balance`: how far the schema's `prevalence` makes classes weigh alike in every query, 0 (not at all) to 1
      (altogether). Default: None: by the rule .5 where one is rare (studies/defaults/rare.md says when).
    - `order`: of categories of two classes: "auto" (those of more than 30 values, and all of three or more from a
      strength of 20,000 on), "none", or "found" (all of three or more), by noisy counts of rows per class and value, at
      a tenth of the budget. Their tests are then `one of these values`. Default: "auto".

    Each round costs one selection at the calibrated price (range, not twice the sensitivity: half the paper's noise),
    however many classes there are.
    """

    name: ClassVar[str] = "lazybb"

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter is out of range, or the target is a number."""
        if public.classes is None:
            raise InputError(f"learner lazybb: {public.target!r} is a number; it needs classes")
        self.check_smooth(public, MAX_ROUNDS)
        if self.reweighting == "projected" and len(public.classes) != 2:
            raise InputError("reweighting='projected': two classes only; scheduled reweighting takes more")

    def learn(self, session: Releaser) -> VotingEnsemble:
        """Release a selection per round, each a vote; then the counts by score where there are two classes."""
        settings = self.settings(session.public)
        session = self.cut(session, settings.rounds)
        public = session.public
        assert public.classes is not None
        cast = _Cast(one_rules(public.features), 1 if len(public.classes) == 2 else len(public.classes))
        reweighting, mechanism = self.reweighting_of(settings, public), public.selection(session.unit)
        weighed = self.class_weights(public)
        for _ in range(settings.rounds):
            query = WeightedAgreement(cast.rules, reweighting, cast.votes, cast.bound, cast.outputs, public, weighed)
            cast.add(session.release(query, mechanism), settings)
        votes, link = tuple(cast.votes), link_of(settings) / unit_of(settings)
        offsets = weighed.offsets if weighed else ()
        if self.threshold and cast.outputs == 1:
            link, constant = self.place(session, VoteScores(cast.bound, link, votes), sum(offsets))
            votes = (*votes, Vote("always", 0, 0, constant))
        else:
            votes = (*votes, *(Vote("always", 0, 0, round(off / link), k) for k, off in enumerate(offsets)))
        return VotingEnsemble(public.features, public.target, public.classes, votes, link)


class _First(Sequence[Vote]):
    """The first `size` of a list that only grows. A copy each of 5,000 rounds would take longer than the rest."""

    def __init__(self, votes: list[Vote], size: int) -> None:
        self._votes, self._size = votes, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: Any) -> Any:
        return self._votes[: self._size][at] if isinstance(at, slice) else self._votes[range(self._size)[at]]


class _Cast:
    """The votes released so far, and per output how many and of what total weight."""

    def __init__(self, rules: OneRules, outputs: int) -> None:
        self.rules, self.outputs = rules, outputs
        self._votes: list[Vote] = []
        self.bound = 0
        self._counts, self._weights = [0] * outputs, [0] * outputs

    @property
    def votes(self) -> Sequence[Vote]:
        """Return the votes released so far, unchanged by later ones."""
        return _First(self._votes, len(self._votes))

    def add(self, pick: int, settings: Defaults) -> None:
        output, candidate = divmod(int(pick), self.rules.size)
        weight = weight_of_vote(self._counts[output], settings)
        self._votes.append(self.rules.vote(candidate, weight, output))
        self._counts[output] += 1
        self._weights[output] += weight
        self.bound = max(self.bound, self._weights[output])
