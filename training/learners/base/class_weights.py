"""Public weights of rows by their class, from the shares that a schema declares (`prevalence`), for rare classes.

A row's weight in a query is multiplied by a public number of at most 1 for its class: what one row can weigh, and so
every price, stays what it was. Scores are then learnt as if classes were more alike, and `offsets`, public too, bring
them back to the declared shares: docs/privacy/trees.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from training.learners.base.checks import check_real
from training.session.session import Public

Integers = NDArray[np.int64]
FINE = 20  # binary digits of a class's weight
ONE = 1 << FINE
RARE, FEWEST, MOST, ROOT = 0.05, 25.0, 500.0, 0.5  # share, and rows x epsilon, of the rarer class: studies/defaults
UNEVEN, ENOUGH = 0.5, 100.0  # of three classes or more: share over an even one's, and the same rows, to weigh below


@dataclass(frozen=True)
class Balance:
    """`pairs`: of each output, what rows of the other classes and of its own weigh, in 2^-20; two classes have one
    output. The larger of the two is 1. `offsets`: what scores learnt so lack, in log-odds of each output. `power`: how
    far classes are made alike, 1 altogether.
    """

    pairs: tuple[tuple[int, int], ...]
    offsets: tuple[float, ...]
    power: float = 1.0

    @property
    def words(self) -> str:
        """Return what the purpose of a release, and so plans and certificates, say of the class weights."""
        if len(self.pairs) > 1:
            alike = "as much as the others" if self.power == 1 else f"nearer to the others, to the power {self.power:g}"
            return f", each class weighing {alike} by the declared shares"
        first, last = (f"{weight / ONE:.4g}" for weight in self.pairs[0])
        return f", rows of the first class weighing {first} and of the second {last}"

    def of(self, weights: Integers) -> Integers:
        """Return weights by margin (n,) split by output and by whether the row is of its class: (outputs, 2, n), none
        larger. They are whole numbers, rounded down, and the same for both neighbours wherever `weights` are."""
        return np.asarray(np.asarray(self.pairs, np.int64)[:, :, None] * weights >> FINE)

    def of_two(self, weights: Integers) -> Integers:
        """Return the same where there are two classes: (2, n)."""
        return np.asarray(self.of(weights)[0])


def check_balance(balance: float | None, public: Public) -> None:
    """Raise InputError where `balance` is out of range, or asks for shares that are not declared."""
    if balance is None:
        return
    check_real("balance", balance, "between 0 and 1", lambda x: 0 <= x <= 1)
    if balance and not public.prevalence:
        raise InputError(
            f"balance={balance}: needs the classes' shares; declare the target's `prevalence` in the schema, from "
            "public knowledge"
        )


def balance_of(public: Public, strength: float) -> float:
    """Return the public rule of boosting by smooth reweighting: by the root of what would make classes alike, where the
    rarest is rare, and has rows enough for this epsilon to tell something by, and not so many that it does well
    without.
    """
    rarest, classes = min(public.prevalence, default=1.0), len(public.prevalence)
    signal = rarest * strength
    if classes > 2 and (rarest >= UNEVEN / classes or signal >= ENOUGH):
        return 0.0
    return ROOT if rarest < RARE and FEWEST <= signal < MOST else 0.0


def class_weights(public: Public, balance: float | None) -> Balance | None:
    """Return weights that make classes alike as far as `balance` says: 1 altogether, 0 or None not at all.

    None where classes are not weighed: no shares are declared, or all are the same.
    """
    shares, power = public.prevalence, balance or 0.0
    if not shares or not power:
        return None
    weighed_shares = shares[1:] if len(shares) == 2 else shares
    pairs = tuple((_part(share / (1 - share), power), _part((1 - share) / share, power)) for share in weighed_shares)
    if all(pair == (ONE, ONE) for pair in pairs):
        return None
    if len(shares) == 2:
        return Balance(pairs, (log(pairs[0][0] / pairs[0][1]),))
    return Balance(pairs, tuple(power * log(share) for share in shares), power)


def words_of(weights: Balance | None) -> str:
    """Return the words about class weights in a release's purpose."""
    return weights.words if weights else ""


def mean_weight(public: Public, weights: Balance | None) -> float:
    """Return what a row weighs in the mean, by the declared shares of two classes."""
    if weights is None:
        return 1.0
    return sum(share * weight / ONE for share, weight in zip(public.prevalence, weights.pairs[0], strict=True))


def _part(odds: float, power: float) -> int:
    return max(1, round(min(1.0, float(odds**power)) * ONE))
