"""The closed list of privacy events: what one release may cost. Stored events never change meaning.

Each event is one frozen decimal number (private selection: a distribution and what one run releases), from which all
figures follow, of public parameters only. Its prices: the pure epsilon (None stands for infinite) and the Renyi curve.
`event_to_json` / `event_from_json` are the stored form. To add an event: docs/development.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, inf, log, log1p, sqrt
from typing import Any, ClassVar, TypeGuard, get_args

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import JSON, decimal_string, exact_object, exact_text, parse_decimal
from dpserve_verify.privacy.budget import MAX_EPSILON, NANO, from_nano, nano
from dpserve_verify.privacy.selection import Curve, Distribution, distribution_from_json, selection_curve

MAX_NOISE = Decimal(10**9)
MAX_COUNT = 2**31 - 1
ROUNDING = 4  # variance, in squared grid units, that rounding a Gaussian to integers takes up


class PrivacyEvent(ABC):
    """What one release may cost. Where an event says nothing of itself, the worst is taken: a figure that was forgotten
    costs more, never less.
    """

    type: ClassVar[str]
    bounded: ClassVar[bool] = False  # whether its privacy losses lie in an interval of length `pure`

    @property
    @abstractmethod
    def pure(self) -> Decimal | None:
        """Return the pure epsilon, with at most 9 decimals; None where there is none."""

    @abstractmethod
    def rdp(self, order: float) -> float:
        """Return the Renyi divergence at `order` > 1, never below the truth; prices round it up."""

    def squared_mu(self, sensitivity: int) -> Fraction | None:
        """Return mu^2 of the Gaussian DP of a release on the integers, of that L2 `sensitivity`; None where it has
        none.
        """
        return None

    @property
    def deviation(self) -> float | None:
        """Return the standard deviation of the noise on a sum, per unit of sensitivity; None where it adds none."""
        return None

    @property
    @abstractmethod
    def words(self) -> str:
        """Describe what it costs, in a few words for the readers of a certificate."""


@dataclass(frozen=True)
class BoundedRange(PrivacyEvent):
    """A release whose privacy losses lie in an interval of length `epsilon` (Durfee and Rogers 2019): the exponential
    mechanism.
    """

    type: ClassVar[str] = "bounded-range"
    parameter: ClassVar[str] = "epsilon"
    bounded: ClassVar[bool] = True
    epsilon: Decimal

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, MAX_EPSILON)

    @property
    def pure(self) -> Decimal:
        """Return epsilon: an interval of that length holds all losses and 0, so no loss is beyond epsilon."""
        return self.epsilon

    def rdp(self, order: float) -> float:
        """Compute the exact worst-case Renyi divergence at `order` > 1 (docs/privacy/prices.md).

        Never above order * epsilon**2 / 8. Right to 1e-13 in absolute terms for every epsilon that
        an event may have: the rounding of prices covers it.
        """
        e, a = float(self.epsilon), order
        ratio = expm1(-a * e) / expm1(-e)
        t = log((a - 1) * ratio / (a * (ratio * exp(-e) - exp(-a * e))))
        t = min(max(t, 0.0), e)
        p = expm1(e - t) / expm1(e)
        low = log1p(-p) + a * (t - e) if p < 1 else -inf
        high = log(p) + a * t if p > 0 else -inf
        top = max(low, high)
        return min(a * e * e / 8, (top + log(exp(low - top) + exp(high - top))) / (a - 1))

    @property
    def squared_width(self) -> Fraction:
        """Return the square of the width of the interval that holds its losses. Releases of such widths have together a
        Renyi divergence of at most a / 8 times the sum of squares at order a.
        """
        return Fraction(self.epsilon) ** 2

    @property
    def words(self) -> str:
        """Name its kind and epsilon."""
        return f"{self.type} epsilon {decimal_string(self.epsilon)}"


@dataclass(frozen=True)
class PureDp(PrivacyEvent):
    """Any epsilon-DP release: permute-and-flip, Laplace on a grid. Renyi curve of randomized response, the worst
    one.
    """

    type: ClassVar[str] = "pure-dp"
    parameter: ClassVar[str] = "epsilon"
    epsilon: Decimal

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, MAX_EPSILON)

    @property
    def pure(self) -> Decimal:
        """Return the epsilon that the event is named by."""
        return self.epsilon

    def rdp(self, order: float) -> float:
        """Return log((e^{a e} + e^{(1 - a) e}) / (1 + e^e)) / (a - 1); never above order * epsilon**2 / 2, nor above
        epsilon.
        """
        e, a = float(self.epsilon), order
        return min(a * e * e / 2, e, ((a - 1) * e + log1p(exp((1 - 2 * a) * e)) - log1p(exp(-e))) / (a - 1))

    @property
    def squared_width(self) -> Fraction:
        """Return the square of the width, as of bounded range: the losses lie from -epsilon to epsilon."""
        return 4 * Fraction(self.epsilon) ** 2

    @property
    def deviation(self) -> float:
        """Return the standard deviation of Laplace noise, per unit of sensitivity."""
        return sqrt(2) / float(self.epsilon)

    @property
    def words(self) -> str:
        """Name its kind and epsilon."""
        return f"{self.type} epsilon {decimal_string(self.epsilon)}"


@dataclass(frozen=True)
class Gaussian(PrivacyEvent):
    """Gaussian noise, continuous or discrete: `noise_multiplier` = sigma / L2 sensitivity. RDP a / (2 sigma^2), no
    pure price.
    """

    type: ClassVar[str] = "gaussian"
    parameter: ClassVar[str] = "noise_multiplier"
    noise_multiplier: Decimal

    def __post_init__(self) -> None:
        _check("noise_multiplier", self.noise_multiplier, MAX_NOISE)

    @property
    def pure(self) -> None:
        """Return None: its losses have no bound."""

    def rdp(self, order: float) -> float:
        """Return order / (2 sigma^2): Mironov 2017, Corollary 3."""
        return order / (2 * float(self.noise_multiplier) ** 2)

    def squared_mu(self, sensitivity: int) -> Fraction | None:
        """Return 1 / (noise_multiplier^2 - 4 / sensitivity^2) (docs/privacy/prices.md); None where the noise is too
        narrow for the grid.
        """
        remaining = Fraction(self.noise_multiplier) ** 2 - Fraction(ROUNDING, sensitivity**2)
        return 1 / remaining if remaining > 0 else None

    @property
    def squared_width(self) -> Fraction:
        """Return the square of the width, as of bounded range: of the interval with a Renyi curve as large."""
        return 4 / Fraction(self.noise_multiplier) ** 2

    @property
    def deviation(self) -> float:
        """Return the noise multiplier that the event is named by."""
        return float(self.noise_multiplier)

    @property
    def words(self) -> str:
        """Name its kind and noise multiplier."""
        return f"{self.type} with noise multiplier {decimal_string(self.noise_multiplier)}"


SimpleEvent = BoundedRange | PureDp | Gaussian
SIMPLE: tuple[type[SimpleEvent], ...] = get_args(SimpleEvent)


@dataclass(frozen=True)
class RepeatAndSelect(PrivacyEvent):
    """Private selection (`dpserve_verify.privacy.selection`): a random number of runs, of which the best one's outcome
    is released.

    `runs` is what ONE run releases, its score included: (event, count) in order, equal neighbours merged. No selection
    within a selection.
    """

    type: ClassVar[str] = "repeat-and-select"
    distribution: Distribution
    runs: tuple[tuple[SimpleEvent, int], ...]

    def __post_init__(self) -> None:
        merged = all(earlier[0] != later[0] for earlier, later in zip(self.runs, self.runs[1:], strict=False))
        simple = all(isinstance(event, SIMPLE) and _is_count(count) for event, count in self.runs)
        if not (self.runs and merged and simple):
            raise InputError("runs: must be simple events with their counts, at least one, equal neighbours merged")

    @property
    def pure(self) -> Decimal | None:
        """Return the pure epsilon of the whole selection, rounded up to 9 digits; None where there is none."""
        total = sum((count * Fraction(event.pure) for event, count in self.runs if event.pure is not None), Fraction(0))
        price = None if any(event.pure is None for event, _ in self.runs) else self.distribution.pure(total)
        return None if price is None else from_nano(ceil(price * NANO))

    def rdp(self, order: float) -> float:
        """Bound it by Papernot and Steinke 2022; at most the pure price. 1e-12 of itself covers floating point."""
        return min(_curve(self)(order), inf if self.pure is None else float(self.pure)) * (1 + 1e-12)

    @property
    def words(self) -> str:
        """Describe the distribution of the number of runs, and what each would release."""
        runs = " and ".join(f"{count} x {event.words}" for event, count in self.runs)
        return f"the best of a random number ({self.distribution.type}) of runs of {runs}"


@lru_cache(maxsize=1024)
def _curve(event: RepeatAndSelect) -> Curve:
    pure = sum(inf if each.pure is None else count * float(each.pure) for each, count in event.runs)
    once = lru_cache(maxsize=256)(lambda order: sum(count * each.rdp(order) for each, count in event.runs))
    return selection_curve(event.distribution, once, pure)  # a search asks for the same orders again and again


Event = SimpleEvent | RepeatAndSelect
EVENT_TYPES: tuple[type[Event], ...] = (*SIMPLE, RepeatAndSelect)


def _check(name: str, value: Decimal, high: Decimal) -> None:
    if not value.is_finite() or not 0 < value <= high or value != from_nano(nano(value)):
        raise InputError(f"{name}={value}: must be > 0 and at most {high}, with at most 9 decimals")


def _is_count(count: object) -> TypeGuard[int]:
    return type(count) is int and 1 <= count <= MAX_COUNT


def event_to_json(event: Event) -> dict[str, Any]:
    """Return the stored form: the type and its parameters, decimals as texts."""
    if isinstance(event, RepeatAndSelect):
        runs = [{"event": event_to_json(each), "count": count} for each, count in event.runs]
        return {"type": event.type, "distribution": event.distribution.to_json(), "runs": runs}
    return {"type": event.type, event.parameter: decimal_string(getattr(event, event.parameter))}


def event_from_json(body: object) -> Event:
    """Read what `event_to_json` wrote. What is not understood is refused, never skipped."""
    if isinstance(body, Mapping) and body.get("type") == RepeatAndSelect.type:
        return _selection_from_json(body)
    return _simple_from_json(body)


def _simple_from_json(body: object) -> SimpleEvent:
    if isinstance(body, Mapping):
        for kind in SIMPLE:
            if body.get("type") == kind.type and set(body) == {"type", kind.parameter}:
                return kind(parse_decimal(body[kind.parameter]))
    raise InputError(f"event={body!r:.200}: not on the closed list {[kind.type for kind in EVENT_TYPES]}")


def _selection_from_json(body: Any) -> RepeatAndSelect:
    fields = exact_object(body, ("type", "distribution", "runs"), RepeatAndSelect.type)
    if not isinstance(fields["runs"], list):
        raise InputError("runs: must be a list")
    runs = [exact_object(run, ("event", "count"), "run of a selection") for run in fields["runs"]]
    pairs = tuple((_simple_from_json(run["event"]), _count(run["count"])) for run in runs)
    return RepeatAndSelect(distribution_from_json(fields["distribution"]), pairs)


def _count(count: object) -> int:
    if not _is_count(count):
        raise InputError(f"count={count!r:.60}: must be a whole number from 1 to {MAX_COUNT}")
    return count


@dataclass(frozen=True)
class Release:
    """One line of a plan: what is asked, by which mechanism, at which price, under which sensitivity.

    `sensitivity` is in the query's own integer units and is of the kind `norm` (range, l1 or l2) under the dataset's
    relation.
    """

    purpose: str
    mechanism: str
    norm: str
    sensitivity: int
    event: Event

    def __post_init__(self) -> None:
        if not self.sensitivity >= 1:
            raise InputError(f"sensitivity={self.sensitivity}: must be at least 1, or no noise would be drawn")


@dataclass(frozen=True)
class Plan:
    """A sequence of releases, stored as runs (release, count). Public, and fixed before any row is read."""

    runs: tuple[tuple[Release, int], ...]

    @classmethod
    def of(cls, releases: Iterable[Release]) -> Plan:
        """Build a plan from releases in order; equal neighbours become one run."""
        runs: list[tuple[Release, int]] = []
        for release in releases:
            if runs and runs[-1][0] == release:
                runs[-1] = (release, runs[-1][1] + 1)
            else:
                runs.append((release, 1))
        return cls(tuple(runs))

    def __len__(self) -> int:
        return sum(count for _, count in self.runs)

    def __getitem__(self, index: int) -> Release:
        for release, count in self.runs:
            if index < count:
                return release
            index -= count
        raise IndexError(index)

    @property
    def events(self) -> tuple[tuple[Event, int], ...]:
        """List what the releases cost: (event, count) in order."""
        return tuple((release.event, count) for release, count in self.runs)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the stored form: one object for each run."""
        return [
            {
                "purpose": release.purpose,
                "mechanism": release.mechanism,
                "norm": release.norm,
                "sensitivity": str(release.sensitivity),
                "event": event_to_json(release.event),
                "count": count,
            }
            for release, count in self.runs
        ]


def plan_from_json(body: Any) -> Plan:
    """Read what `Plan.to_json` wrote; any other shape raises InputError."""
    if not isinstance(body, list):
        raise InputError("plan: must be a list of runs")
    return Plan(tuple(_run_from_json(run) for run in body))


def _run_from_json(body: JSON) -> tuple[Release, int]:
    run = exact_object(body, ("purpose", "mechanism", "norm", "sensitivity", "event", "count"), "plan run")
    purpose, mechanism, norm = (exact_text(run[key], f"plan {key}") for key in ("purpose", "mechanism", "norm"))
    sensitivity, count = parse_decimal(exact_text(run["sensitivity"], "plan sensitivity")), _count(run["count"])
    if sensitivity % 1:
        raise InputError(f"sensitivity={sensitivity}: must be a whole number")
    return Release(purpose, mechanism, norm, int(sensitivity), event_from_json(run["event"])), count
