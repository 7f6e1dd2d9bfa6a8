"""What can be expected of a model before anything is spent, from public facts alone: what learners by their defaults
reached in the utility study on held-out rows. It costs no fit and reads no row: other data may be harder or easier. Of
a rare class less is learnt: where its share is declared, twice its rows count, and no others. Where a model of the same
dataset was evaluated, that is released, and narrows it at no price. How the constants were
found, and how often they were right about datasets left out: studies/defaults/forecast.md,
which `python -m studies.defaults.forecast` makes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from models.parts.forecast import Forecast
from training.learners.boosting.defaults import strength
from training.session.session import Public

FROM = (0.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""Where the bands of strength begin; a class of several counts as one model of that many."""
GUESS = 0.55
"""What is no better than guessing: an AUROC below, of the mean over splits."""
LEAST: dict[str, float] = {
    "lazybb": 97.0,
    "lazybb-tree": 97.0,
    "ebm": 84.0,
}
"""By learner: the strength from which models were better than that."""
REACHED: dict[str, tuple[tuple[float, float, float], ...]] = {
    "lazybb": (
        (0.451, 0.635, 0.911),
        (0.646, 0.77, 0.987),
        (0.716, 0.848, 0.981),
        (0.736, 0.889, 0.991),
        (0.753, 0.899, 0.998),
        (0.762, 0.91, 0.999),
    ),
    "lazybb-tree": (
        (0.372, 0.523, 0.915),
        (0.584, 0.812, 0.986),
        (0.725, 0.871, 0.988),
        (0.73, 0.923, 0.99),
        (0.748, 0.953, 1.0),
        (0.755, 0.911, 1.0),
    ),
    "ebm": (
        (0.504, 0.623, 0.91),
        (0.619, 0.7, 0.987),
        (0.737, 0.878, 0.985),
        (0.714, 0.887, 0.99),
        (0.753, 0.941, 0.996),
        (0.761, 0.91, 1.0),
    ),
}
"""By learner and band: the AUROC that a twentieth of the cells stayed below, half of them, and all but a twentieth."""


RATIOS = (0.4, 0.75, 1.34, 2.5)
"""Where the bands begin of a strength by an earlier one's, behind the first."""
WEAKER = (300.0, 1000.0)
"""Where the bands begin of the weaker of the two strengths, behind the first."""
LEAST_MEASURED = 100.0  # strength of an earlier model that says something of another
SHIFTS: tuple[tuple[tuple[float, float], ...], ...] = (
    ((-2.963, -0.109), (-2.296, -0.011), (-1.54, 0.025)),
    ((-1.28, 0.276), (-1.024, 0.153), (-0.72, 0.119)),
    ((-0.568, 0.568), (-0.635, 0.635), (-0.435, 0.435)),
    ((-0.024, 1.604), (-0.163, 1.041), (-0.132, 0.721)),
    ((0.14, 3.326), (0.011, 2.296), (-0.025, 1.481)),
)
"""By both bands: how much higher the log odds of the AUROC are then, all but a twentieth on either side."""


@dataclass(frozen=True)
class Measured:
    """What a model of the same dataset was measured at: its strength, and the ends of its AUROC's interval."""

    strength: float
    low: float
    high: float


def power(records: float, epsilon: float, classes: int) -> float:
    """Return the signal to noise, as `strength` has it, of each of the models that classes are told apart by."""
    return records * epsilon / (1 if classes == 2 else classes)


def telling_share(public: Public) -> float:
    """Return the share of rows that tells two classes apart: 1, or twice the rarer class's declared share."""
    return 2 * min(public.prevalence) if len(public.prevalence) == 2 else 1.0


def signal_of(public: Public) -> float:
    """Return the strength of what tells the classes apart: of two, twice the rows of the rarer one at most."""
    return power(strength(public), 1.0, len(public.classes or ())) * telling_share(public)


def expected(public: Public, learner: str, earlier: Sequence[Measured] = ()) -> Forecast | None:
    """Return what to expect: of datasets that were left out about eight of ten lay between the outer two of its
    `auroc`. None of a number, of which no study tells. Of learners that are not in the study, as those of others, and
    at delta 0, nothing is known, and what those of the study reach stands beside it. `earlier`: what models of the same
    dataset and target were measured at.
    """
    if public.classes is None:
        return None
    signal, epsilon = signal_of(public), float(public.budget.epsilon)
    is_studied = learner in LEAST and public.budget.delta > 0
    enough = LEAST[learner] if is_studied else min(LEAST.values())
    least = float(f"{enough * epsilon / max(signal, 1e-9 * epsilon):.2g}")
    at = {name: bands[bisect_right(FROM, signal) - 1] for name, bands in REACHED.items()}
    most = 0.0, max(ends[1] for ends in at.values()), max(ends[2] for ends in at.values())
    band = at[learner] if is_studied else most
    ends = min((narrow(band, signal, each) for each in earlier), key=lambda ends: ends[2] - ends[0], default=band)
    is_measured = is_studied and ends[2] - ends[0] < band[2] - band[0]
    low, middle, high = ends if is_measured else band
    tables = f"on most other tables of this size (as much as {max(1.0, float(f'{signal / epsilon:.2g}')):,.0f} rows)"
    expects, by = f"AUROC {low:.2f} to {high:.2f}", f"as {tables}"
    if is_measured:
        by = "by what an earlier model here was measured at"
    if not is_studied:
        reached = f"AUROC {min(ends[0] for ends in at.values()):.2f} to {high:.2f}"
        expects = "not known at delta 0" if learner in LEAST else f"not known of {learner}"
        by = f"of which no study tells; {', '.join(LEAST)} at a delta above 0 reach {reached} {tables}"
    figures = {"auroc": {"low": low, "middle": middle, "high": high}}
    if signal >= enough:
        return Forecast(expects, by, least=least, figures=figures)
    why, there = "too few rows for this epsilon", "by what other tables reached, better"
    return Forecast(expects, by, why, least, there, figures)


def narrow(
    band: tuple[float, float, float],
    signal: float,
    measured: Measured,
    shifts: tuple[tuple[tuple[float, float], ...], ...] = SHIFTS,
) -> tuple[float, float, float]:
    """Return the ends of what is expected at a strength, and the middle between, by what was measured at another;
    within `band` where they meet. The whole `band` where that was too weak to say something.
    """
    if measured.strength < LEAST_MEASURED:
        return band
    of_ratio = shifts[bisect_right(RATIOS, signal / measured.strength)]
    shift = of_ratio[bisect_right(WEAKER, min(signal, measured.strength))]
    low, high = (moved(end, by) for end, by in zip((measured.low, measured.high), shift, strict=True))
    if low <= band[2] and band[0] <= high:
        low, high = max(low, band[0]), min(high, band[2])
    return round(low, 3), round((low + high) / 2, 3), round(high, 3)


def log_odds(auroc: float) -> float:
    """Return the log odds of an AUROC, which is taken to be within 0.02 to 0.998."""
    inside = min(max(auroc, 0.02), 0.998)
    return log(inside / (1 - inside))


def moved(auroc: float, by: float) -> float:
    """Return an AUROC whose log odds are so much higher."""
    return 1 / (1 + exp(-log_odds(auroc) - by))
