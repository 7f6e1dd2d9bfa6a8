"""The closed table of which price goes with which mechanism: its norm, its events, the lines of a plan that must follow
it, whose neighbours it is proved for, and the bounds that may be claimed. What is not in it is refused by who plans, by
the ledger, by its audit and by every verifier. Proofs: docs/privacy/prices.md, whose table is this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.events import BoundedRange, Event, Gaussian, Plan, PureDp, Release, RepeatAndSelect

PURE, RENYI, GAUSSIAN, ADAPTIVE = "pure", "renyi", "gaussian", "adaptive"
KNOWN = (PURE, RENYI, GAUSSIAN, ADAPTIVE)
WIDEST_GAUSSIAN, WIDEST_LAPLACE = 2.0**55, 2.0**48  # scales up to which 64 bits hold the sizes of noise
SELECTION = "private-selection"  # a random number of runs; the plan does not say by which mechanisms each run draws
OBJECTIVE = "objective-perturbation"
EITHER = (Relation.ADD_REMOVE, Relation.REPLACE_ONE)
FINITE = (PURE, RENYI, ADAPTIVE)  # bounds of what has a pure price

Lines = tuple[tuple[str, type[Event]], ...]


@dataclass(frozen=True)
class Pair:
    """One row of the table. `events`: any one of these; `follows`: what a line of it is followed by at once, each with
    what its purpose ends in; `most`: the most rows of one unit of privacy, None for any; `widest`: the scale up to
    which it draws by itself, None where a plan does not tell.
    """

    norm: str
    events: tuple[type[Event], ...]
    bounds: tuple[str, ...]
    follows: Lines = ()
    relations: tuple[Relation, ...] = EITHER
    most: int | None = None
    widest: float | None = inf


_CHOICE = Pair("range", (BoundedRange,), FINITE)
_FLIP = Pair("range", (PureDp,), FINITE)
_CURVED: Lines = ((": how the loss curves", PureDp), (": how near the minimum is", Gaussian))
PAIRS: Mapping[str, Pair] = MappingProxyType(
    {
        "exponential": _CHOICE,
        "exponential-per-row": _CHOICE,
        "permute-and-flip": _FLIP,
        "permute-and-flip-per-row": _FLIP,
        "discrete-laplace": Pair("l1", (PureDp,), FINITE, widest=WIDEST_LAPLACE),
        "discrete-gaussian": Pair("l2", (Gaussian,), (RENYI, GAUSSIAN), widest=WIDEST_GAUSSIAN),
        OBJECTIVE: Pair("l2", (Gaussian,), (RENYI,), _CURVED, (Relation.ADD_REMOVE,), most=1, widest=WIDEST_GAUSSIAN),
        "one-of-k": Pair("replacement", (PureDp,), FINITE, relations=(Relation.REPLACE_ONE,), most=1),
        SELECTION: Pair("run", (RepeatAndSelect,), FINITE, widest=None),
        "vouched-program": Pair("declared", (PureDp, Gaussian), KNOWN, widest=None),
    }
)


def fault_of(plan: Plan) -> str | None:
    """Say what of a plan goes with no row of the table; None where all of it does."""
    return next(_faults(plan), None)


def bound_fault(plan: Plan, bound: str) -> str | None:
    """Say which mechanism of a plan that is in the table no such bound may be claimed of; None where it may."""
    for release, _ in plan.runs:
        if bound not in PAIRS[release.mechanism].bounds:
            return f"claim: the {bound} bound is not proved for {release.mechanism}"
    return None


def proof_fault(plan: Plan, relation: Relation, contributions: int) -> str | None:
    """Say which mechanism of a plan that is in the table is not proved for these neighbours, of whom one has up to so
    many rows; None where all are.
    """
    for release, _ in plan.runs:
        pair = PAIRS[release.mechanism]
        if relation not in pair.relations:
            return f"plan: {release.mechanism} is not proved for {relation} neighbours"
        if pair.most is not None and contributions > pair.most:
            return f"plan: {release.mechanism} is not proved for {contributions} rows of one unit"
    return None


def _faults(plan: Plan) -> Iterator[str]:
    due: list[tuple[Release, str, type[Event]]] = []
    for release, count in plan.runs:
        mechanism = f"plan: mechanism={release.mechanism:.80}"
        pair = PAIRS.get(release.mechanism)
        if pair is None:
            yield f"{mechanism}: is not in the table of mechanisms and their prices"
            return
        if release.norm != pair.norm:
            yield f"{mechanism}: its sensitivity is in {pair.norm}, not in {release.norm:.40}"
        if due:
            first, words, event = due.pop(0)
            wanted = (first.purpose + words, first.mechanism, event, 1)
            if (release.purpose, release.mechanism, type(release.event), count) != wanted:
                yield f"plan: after {first.purpose:.120} must stand its line {words.removeprefix(': ')}"
                return
            continue
        if not isinstance(release.event, pair.events):
            yield f"{mechanism}: the event {release.event.type} is not its price"
        if pair.follows and count != 1:
            yield f"{mechanism}: stands once, before its further lines"
        due = [(release, words, event) for words, event in pair.follows]
    if due:
        yield f"plan: after {due[0][0].purpose:.120} must stand its line {due[0][1].removeprefix(': ')}"
