"""Which features `ebm` looks at together, and in which cells: of public numbers and of what was released before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.features.features import Feature, NumericFeature
from models.parts.pairs import JOINED
from training.learners.ebm.splits import axis_partition
from training.rows.statistics.additive_rows import Joint

AUTO = "auto"
GROUPS, SEEN = 15, 4  # of a feature's values in a pair, and where pairs are only looked at; and the missing one's
EVEN = 0.25  # of a group is bins, the rest rows
MOST_PAIRS = 64
GIVING = 30  # times that rows and columns of a pair are brought to means of 0 in turn
CLEAR = 3.0  # standard deviations of a score's noise, beyond which a pair says something: dozens are looked at
AMONG = 12  # features that pairs are looked for among
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Places = tuple[int, int]


@dataclass(frozen=True)
class Asked:
    """What `pairs` asks for: so `many`, to be found, None where a public rule says how many; or those `named`."""

    many: int | None = None
    named: tuple[Places, ...] = ()


def asked_pairs(value: object, features: Sequence[Feature]) -> Asked:
    """Read `pairs`: "auto", a number, or the pairs themselves, "age & hours; age & sex" or [["age", "hours"], ..].
    InputError where it is none of these, or names what is no feature.
    """
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise InputError(f"pairs={value!r:.80}: must be a JSON list of pairs of features") from None
    if value == AUTO:
        return Asked()
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:9])
    if type(value) is int:
        if not 0 <= value <= MOST_PAIRS:
            raise InputError(f"pairs={value}: must be from 0 to {MOST_PAIRS}")
        return Asked(many=min(value, len(features) * (len(features) - 1) // 2))
    places = {feature.name: at for at, feature in enumerate(features)}
    found = [_places(each, places) for each in _list_pairs(value, places)]
    if len(set(found)) < len(found) or len(found) > MOST_PAIRS:
        raise InputError(f"pairs: each pair once, and at most {MOST_PAIRS}")
    return Asked(len(found), tuple(found))


def _list_pairs(value: object, places: dict[str, int]) -> list[Any]:
    if isinstance(value, str):
        return [_halves(each.strip(), places) for each in value.split(";")]
    if isinstance(value, list | tuple) and value:
        return list(value)
    raise InputError(f"pairs={value!r:.80}: must be auto, a number, or pairs such as age & hours; age & sex")


def _halves(text: str, places: dict[str, int]) -> list[str]:
    """Return a text cut where a feature's name stands on either side: names may hold an & themselves."""
    parts = text.split("&")
    for at in range(1, len(parts)):
        names = ["&".join(parts[:at]).strip(), "&".join(parts[at:]).strip()]
        if all(name in places for name in names):
            return names
    return [part.strip() for part in parts]


def _places(names: Any, places: dict[str, int]) -> Places:
    if not isinstance(names, list | tuple) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise InputError(f"pairs={names!r:.80}: must be the names of two features, such as age & hours")
    for name in names:
        if name not in places:
            raise InputError(f"pairs: {name!r:.80} is no feature; there are {', '.join(list(places)[:20])}")
    first, second = sorted(places[name] for name in names)
    if first == second:
        raise InputError(f"pairs: {names[0]!r:.80} {JOINED.strip()} itself is no pair")
    return first, second


def pairs_among(sizes: Sequence[float]) -> list[Places]:
    """Return the pairs of the features that matter most by themselves, by their released importances."""
    among = sorted(sorted(range(len(sizes)), key=lambda at: (-sizes[at], at))[:AMONG])
    return list(combinations(among, 2))


def joint_of(features: Sequence[Feature], counts: Sequence[Floats], places: Places, most: int = GROUPS) -> Joint:
    """Return the cells of a pair, in at most `most` groups of the values of either, by the released counts."""
    first, second = (groups_of(features[at], counts[at], most) for at in places)
    return Joint(places, (first, second))


def groups_of(feature: Feature, counts: Floats, most: int) -> tuple[int, ...]:
    """Return the group of each code: of a number neighbouring bins with about as many rows, and the missing value by
    itself; else the values that have most rows, each by itself, and the others together.
    """
    inner = feature.bins - 1
    rows = np.maximum(counts, 0)
    if isinstance(feature, NumericFeature):
        if inner <= most:
            return tuple(range(feature.bins))
        share = rows[:-1] / rows[:-1].sum() if rows[:-1].any() else np.full(inner, 1 / inner)
        share = (1 - EVEN) * share + EVEN / inner
        found = np.minimum((np.cumsum(share) - share / 2) * most, most - 1e-9).astype(np.int64)
        gaps = np.cumsum(np.diff(found, prepend=found[0]) > 0)
        return (*gaps.tolist(), int(gaps[-1]) + 1)
    if feature.bins <= most + 1:
        return tuple(range(feature.bins))
    kept = sorted(sorted(range(feature.bins), key=lambda code: (-rows[code], code))[:most])
    places = {code: at for at, code in enumerate(kept)}
    return tuple(places.get(code, most) for code in range(feature.bins))


def rows_by_side(joint: Joint, counts: Sequence[Floats]) -> list[Floats]:
    """Return the noisy rows of each group of either feature, none below 0."""
    sides = zip(joint.features, joint.groups, strict=True)
    return [np.bincount(groups, np.maximum(counts[at], 0)).astype(np.float64) for at, groups in sides]


def by_chance(joint: Joint, counts: Sequence[Floats], total: float) -> float:
    """Return the score of a pair were residuals random numbers of a variance of 1 each: sizes grow with the root of
    rows, of which there are `total`.
    """
    first, second = rows_by_side(joint, counts)
    cells = np.sqrt(np.outer(first, second) / total).sum()
    return max(0.0, float(cells - max(np.sqrt(first).sum(), np.sqrt(second).sum())))


def gains_of(
    joints: Sequence[Joint], counts: Sequence[Floats], sums: NDArray[Any], varying: Any, noise: float
) -> tuple[Floats, Floats]:
    """Return how much each pair leaves to explain, by noisy sums of residuals over its cells, one pair after the other,
    in all beyond what its rows and its columns explain by themselves and what chance and noise make of that; and the
    standard deviation of it by these two. `varying`: the variance of a sum over all rows, by chance alone, for each of
    a cell's numbers; `noise`: the standard deviation of a number's noise.
    """
    found, start, whole = [], 0, np.asarray(varying, np.float64)
    for joint in joints:
        end = start + joint.cells * whole.size
        rows = [side + 1e-9 for side in rows_by_side(joint, counts)]
        shares = [side / side.sum() for side in rows]
        found.append(_gain(sums[start:end].reshape(*joint.shape, whole.size), shares, whole, noise))
        start = end
    gains, deviations = np.array(found).T
    return gains, deviations


def _gain(table: NDArray[Any], shares: Sequence[Floats], varying: Floats, noise: float) -> tuple[float, float]:
    lefts = [np.eye(share.size) - share[:, None] for share in shares]
    left = np.einsum("ai,bj,ijk->abk", *lefts, table)
    drawn = np.multiply.outer(*((each**2).sum(axis=1) for each in lefts))[:, :, None] * noise**2
    spread = drawn + np.multiply.outer(*(share * (1 - share) for share in shares))[:, :, None] * varying
    worth = 1 / (np.multiply.outer(*shares)[:, :, None] * varying + noise)
    return float(((left**2 - spread) * worth).sum()), float(np.sqrt(2 * ((spread * worth) ** 2).sum()))


def clearest(beyond: Floats, noises: Floats, many: int) -> tuple[Integers, int]:
    """Return the places of so many pairs that leave most to explain, and how many of these say more than noise."""
    order = np.argsort(-beyond, kind="stable")[:many]
    return order, int((beyond > CLEAR * noises)[order].sum())


def cells_partition(
    features: Sequence[Feature], joint: Joint, rows: Floats, leaves: int, mass: float, at: Places
) -> Integers:
    """Return the leaf of each cell, (cells,), of a public random partition of either feature's groups, `leaves` of a
    number's. `rows`: noisy rows per cell; `mass` as in `partition`; `at`: place of the pair among the pairs, and epoch.
    """
    grid, (place, epoch) = np.maximum(rows, 0).reshape(joint.shape), at
    sides = []
    for side, feature in enumerate(joint.features):
        own = -1 - 2 * place - side  # no feature stands there: cuts of its own
        rows = grid.sum(axis=1 - side)
        sides.append(axis_partition(features[feature], rows.size, leaves, mass, rows, (own, epoch)))
    return np.asarray(sides[0][:, None] * (sides[1].max() + 1) + sides[1], np.int64).ravel()
