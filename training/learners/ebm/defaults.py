"""The public default rule of `ebm`: what is used where a parameter is not given.

One rule for all datasets, of public numbers alone: records, features, epsilon, delta, the relation, rows of one unit of
privacy, and whether the target is a class or a number. Its constants were chosen by hand from simulations of
Adult, Telco, California, wine quality, elevators and pol (benchmarks/datasets.py), at epsilons from .05 to 8: the ones
with which no dataset did badly, not the best of any. What they reach: studies/dpebm/dpebm.md, and walks.md beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log10, sqrt

from accountant.privacy import gdp
from dpserve_verify.privacy.budget import Budget, Relation
from training.learners.ebm.pairs import Asked
from training.session.session import Public

EPOCHS, PURE_EPOCHS = 40, 8  # Gaussian noise averages out over many epochs; Laplace noise, added up purely, does not
MOST_SUMS, FEWEST_EPOCHS = 3_000, 2  # of many features each is looked at less often: a fit takes seconds still
TRAVEL = 16.0  # rate times epochs is at most this: how many full steps a curve may take, all in all
TRAVEL_OF_MANY = 28.0  # of three classes or more, which begin at their shares and have farther to go
DOUBT = 2.5  # of a number; found with categories and without (studies/dpebm/walks.md)
RIDGE, PURE_RIDGE = (
    30.0,
    15.0,
)  # of classes, in standard deviations of the noise, had all epochs' budget gone into one release
CLIP = 0.4  # the tightest
PAIR_LEAVES = 3
PAIRS_FROM = ((2_500.0, 8), (600.0, 3))  # by strength: how many pairs, at most
LESS_TOLD = 2.5  # of a number, or three classes or more, the same strength tells so much less of pairs


@dataclass(frozen=True)
class EbmDefaults:
    """`epochs` over all features; `leaves` of a random public partition (0: every bin its own leaf); `rate` of a step;
    `ridge`, in standard deviations of one release's noise, added to the rows that a sum is divided by; `share` of the
    budget (mu^2, or epsilon where delta is 0) for the histograms. `doubt`: how far steps of leaves with few rows are
    held back, in standard deviations of the noise of all epochs, beside what there is to explain (0: not).

    `clip` of a residual: of y - p of classes, of half the range of numbers, which are also clipped at `spread` times
    their released root mean square (0: not). `mass`: how far cut points follow the released histogram, from 0 (bins
    are drawn alike) to 1 (rows are).
    """

    epochs: int
    leaves: int
    rate: float
    ridge: float
    share: float
    clip: float = 1.0
    spread: float = 0.0
    mass: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True)
class PairDefaults:
    """`many` pairs, `found` by a noisy score of each where they are not named, in `epochs` over them, with `leaves` of
    a partition of either feature; rate, ridge and doubt are those of features alone."""

    many: int = 0
    found: bool = False
    epochs: int = 0
    leaves: int = PAIR_LEAVES


NO_PAIRS = PairDefaults()


def pair_defaults(public: Public, settings: EbmDefaults, asked: Asked) -> PairDefaults:
    """Return the rule for pairs: some where there is much to tell, and as many epochs over them as over the
    features; none where they would have to be found by shared sums, which costs more than they bring
    (studies/owners/local.md).
    """
    number = asked.many
    if number is None:
        signal = (
            0.0
            if public.pure or public.shared
            else strength(public) / (1.0 if len(public.classes or ()) == 2 else LESS_TOLD)
        )
        number = next((pairs for least, pairs in PAIRS_FROM if signal >= least), 0)
        number = min(number, len(public.features) * (len(public.features) - 1) // 2)
    if not number:
        return NO_PAIRS
    return PairDefaults(number, not asked.named, settings.epochs)


@lru_cache(maxsize=256)
def ebm_defaults(public: Public) -> EbmDefaults:
    """Return the rule. The stronger the signal, the further a curve may go, the finer its steps, and the less is
    clipped.
    """
    power, epochs, ridge = strength(public), EPOCHS, RIDGE
    if public.pure:
        epochs, ridge = PURE_EPOCHS, PURE_RIDGE
    epochs = max(FEWEST_EPOCHS, min(epochs, MOST_SUMS // len(public.features)))
    travel = min(TRAVEL, epochs / 2, 0.4 * sqrt(power))
    if len(public.classes or ()) > 2:
        travel = min(TRAVEL_OF_MANY, epochs * 0.7, 0.25 * sqrt(power))
    clip = min(1.0, max(CLIP, 0.5 + 0.2 * log10(power / 100)))
    number = public.classes is None
    return EbmDefaults(
        epochs=epochs,
        leaves=min(8, max(3, round(2 * power**0.25))),
        rate=travel / epochs,
        ridge=0.0 if number else ridge / sqrt(epochs),
        share=0.025,
        clip=1.0 if number else clip,
        spread=2 * clip if number else 0.0,
        mass=0.7,
        doubt=DOUBT if number else 0.0,
    )


def strength(public: Public) -> float:
    """Return the signal to noise of a feature's sums if they were released once: records over the noise's standard
    deviation, halved where replacing a record moves sums twice as far, and divided by the rows that a unit of privacy
    may have, and by how much wider than priced the noise is.
    """
    features = len(public.features)
    if public.pure:
        noise = sqrt(2 * PURE_EPOCHS) * features / float(public.budget.epsilon)
    else:
        noise = sqrt(features) / mu_of(public.budget)
    twice = 1 if public.relation is Relation.ADD_REMOVE else 2
    return public.records / (noise * twice * public.contributions * public.widening)


@lru_cache(maxsize=256)
def mu_of(budget: Budget) -> float:
    """Return the largest mu whose Gaussian is (epsilon, delta)-DP; delta above 0."""
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    low, high = 0.0, 2 * sqrt(epsilon) + 2 * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp.delta_of(middle, epsilon) <= delta else (low, middle)
    return low
