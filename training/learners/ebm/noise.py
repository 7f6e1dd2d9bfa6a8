"""How a budget is laid out over the releases of DP-EBM: mechanisms that all grow with one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from accountant.noise.objective import MOST_CURVATURE, ObjectivePerturbation
from dpserve_verify.privacy.budget import MAX_EPSILON, NANO, Relation, from_nano, nano
from dpserve_verify.privacy.events import MAX_NOISE
from training.learners.base.cut_points import counted_numbers, counts_share
from training.learners.boosting.defaults import strength
from training.learners.ebm.blocks import Layout
from training.learners.ebm.defaults import NO_PAIRS, EbmDefaults, PairDefaults, mu_of
from training.learners.ebm.defaults import strength as told
from training.session.reach import Norm
from training.session.session import Public

Floats = NDArray[np.float64]
Mechanism = DiscreteGaussian | DiscreteLaplace
SCORING = Fraction(1, 20)  # of the budget, for the scores that pairs are found by
START = Fraction(1, 100)  # of the budget, for each sum that a model starts from
CURVED = Fraction(1, 3)  # the curvature of one convex fit is charged as so much of one over its noise multiplier
NEARER = 20  # what is added to its minimum has so much larger a noise multiplier
DEARER = 0.9  # such a fit, charged by Renyi curves alone, gets about so much of the unit
CHOOSING, LEAST, MOST = 40.0, 0.02, 0.75  # four deviations of noise are what rows say of a start; shares of the budget
PLACING = Fraction(1, 50)  # of the budget, for the counts by which chances are placed


@dataclass(frozen=True)
class Noise:
    """`finding` for the counts that cut points are found by, `scoring` for the scores that pairs are found by,
    `counting` for the histograms, `starting` for what a model starts from, `placing` for the counts by class and score,
    `choosing` for whether a public start is left, `summing` for the rest.
    """

    finding: Mechanism
    scoring: Mechanism
    counting: Mechanism
    starting: Mechanism
    placing: Mechanism
    choosing: Mechanism
    summing: Mechanism
    norm: Norm


def noise_of(public: Public, unit: Decimal, settings: EbmDefaults, pairs: PairDefaults = NO_PAIRS) -> Noise:
    """Return the noise of each release. A sum gets `unit`: epsilon where delta is 0, else mu = 1 / noise multiplier.
    More of it is never more noise.
    """
    ratios = (*_ratios(public, settings, pairs), Fraction(1))
    finding, scoring, counting, starting, placing, choosing, summing = (
        noise_at(public, unit, ratio) for ratio in ratios
    )
    norm: Norm = "l1" if public.pure else "l2"
    return Noise(finding, scoring, counting, starting, placing, choosing, summing, norm)


def unit_near(public: Public, settings: EbmDefaults, pairs: PairDefaults, found: int) -> Decimal:
    """Return a unit a little below the largest that the budget carries: where calibration starts, and need not search.
    `found`: how many counts cut points are found by.
    """
    epsilon, features = float(public.budget.epsilon), len(public.features)
    finding, scoring, counting, starting, placing, choosing = _ratios(public, settings, pairs)
    units = features * (settings.epochs + counting) + starting + found * finding
    units += placing if public.classes is not None else starting if settings.spread else 0
    units += starting if len(public.classes or ()) > 2 else 0
    units += 0 if public.start is None else choosing
    units += pairs.many * (pairs.epochs + counting) + pairs.found * scoring
    unit = epsilon / units if public.pure else mu_of(public.budget) / sqrt(units)
    return from_nano(int(unit * (1 - 1e-7) * NANO))


def convex_noise(unit: Decimal, sums: int, layout: Layout) -> ObjectivePerturbation:
    """Return the noise of one convex fit that takes the place of so many sums."""
    noise = _gaussian(unit, Fraction(sums)).noise_multiplier
    curvature = min(MOST_CURVATURE, from_nano(max(1, int(CURVED * NANO / Fraction(noise)))))
    return ObjectivePerturbation(noise, curvature, min(MAX_NOISE, NEARER * noise), layout.square, layout.most)


def noise_at(public: Public, unit: Decimal, ratio: Fraction) -> Mechanism:
    """Return the noise of a release that gets so much of epsilon, or of mu^2, where a sum gets 1."""
    return (_pure if public.pure else _gaussian)(unit, ratio)


def count_rows(public: Public, counts: Sequence[Floats], noise: Noise) -> float:
    """Return how many rows there are: public under replace-one, else by the features' histograms, the shorter the
    surer, and by the declared number, which is taken to be off by half of itself: of weak histograms alone it might
    come out as none.
    """
    if public.relation is Relation.REPLACE_ONE:
        return float(public.records)
    sizes = np.array([count.size for count in counts])
    found = np.array([count.sum() for count in counts]) @ (1 / sizes) / (1 / sizes).sum()
    wide = noise.counting.event.deviation * public.widening * public.contributions
    doubt = wide**2 / float((1 / sizes).sum())
    trust = 1 / (1 + doubt / (public.records / 2) ** 2)
    return max(1.0, trust * float(found) + (1 - trust) * public.records)


def _ratios(
    public: Public, settings: EbmDefaults, pairs: PairDefaults
) -> tuple[Fraction, Fraction, Fraction, Fraction, Fraction, Fraction]:
    """Return what a count that finds cut points, the scores of pairs, a histogram, a starting sum, the counts by class
    and score and the choice of a start get, of epsilon or of mu^2, where any other sum gets 1.
    """
    share, features = Fraction(settings.share), len(public.features)
    sums = settings.epochs * features + pairs.epochs * pairs.many
    together = counts_share(public, strength(public))
    finding = together / (1 - together) * sums / max(1, 2 * counted_numbers(public))
    counting = share * sums / (features + pairs.many) / (1 - share)
    choosing = choosing_share(public) / (1 - choosing_share(public)) * sums
    starting, placing = (max(Fraction(1), part * sums) for part in (START, PLACING))
    return finding, SCORING / (1 - SCORING) * sums, counting, starting, placing, choosing


def choosing_share(public: Public) -> Fraction:
    """Return the share of the budget for whether to leave a public start: what tells a wrong one, and with few rows
    most of it, for the rounds have little to learn with then.
    """
    signal = told(public) * sqrt(len(public.features))
    return Fraction(min(MOST, max(LEAST, (CHOOSING / signal) ** 2)))


def _pure(unit: Decimal, ratio: Fraction) -> DiscreteLaplace:
    return DiscreteLaplace(from_nano(min(max(1, int(ratio * nano(unit))), nano(MAX_EPSILON))))


def _gaussian(unit: Decimal, ratio: Fraction) -> DiscreteGaussian:
    exact = Fraction(1 / sqrt(ratio)) / Fraction(unit)
    return DiscreteGaussian(min(MAX_NOISE, from_nano(ceil(exact * NANO))))
