"""Small learners over counts: one that keeps its promise, and each with one fault, of the kinds that are published."""

from __future__ import annotations

import random
from array import array
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from accountant.noise.mechanisms import DiscreteLaplace, ExponentialSelection
from dpserve_verify.privacy.budget import Relation

FULL = 100  # what a row adds to a sum at most


@dataclass(frozen=True)
class Counts:
    """Rows per code of a feature: a row counts once."""

    feature: int = 0
    size: int = 14
    norm: str = "l1"
    purpose: ClassVar[str] = "count rows per bin"

    def sensitivity(self, relation: Relation) -> int:
        return 1 if relation is Relation.ADD_REMOVE else 2

    def __call__(self, rows: Any) -> Any:
        return np.bincount(rows.bins[self.feature], minlength=self.size)[: self.size].astype(np.int64)


@dataclass(frozen=True)
class Sum(Counts):
    """The sum of a feature's codes, each at most FULL."""

    size: int = 1
    worth: int = 10

    def sensitivity(self, relation: Relation) -> int:
        return FULL

    def values(self, rows: Any) -> Any:
        return np.minimum(rows.bins[self.feature].astype(np.int64) * self.worth, FULL)

    def __call__(self, rows: Any) -> Any:
        return np.array([self.values(rows).sum()], np.int64)


@dataclass(frozen=True)
class Scores(Counts):
    """How often each code stands there, as scores to select by."""

    norm: str = "range"


class Toy:
    """Counts each of two features, then a sum: as it should be. `queries`: what it asks, by which mechanism."""

    queries: ClassVar[tuple[tuple[Any, type], ...]] = (
        (Counts(0), DiscreteLaplace), (Counts(2, 6), DiscreteLaplace), (Sum(0), DiscreteLaplace),
        (Scores(2, 6), ExponentialSelection),
    )  # fmt: skip

    def learn(self, session: Any) -> Any:
        return [np.asarray(session.release(query, kind(session.unit))).tolist() for query, kind in self.queries]


def asking(query: Any, kind: type = DiscreteLaplace) -> type:
    return type("Asking", (Toy,), {"queries": ((query, kind),)})


class Spy(Counts):
    """Counts, and keeps the rows aside."""

    seen: ClassVar[list[Any]] = []

    def __call__(self, rows: Any) -> Any:
        self.seen[:] = [rows]
        return super().__call__(rows)


def exactly(query: Any) -> Any:
    """What stands before the noise, once the session has handed the rows to Spy."""
    return query(Spy.seen[0]) if Spy.seen else np.zeros(query.size, np.int64)


def spying(after: Any) -> type:
    """A learner that keeps rows aside at its first release, and does `after(session, first)` with them."""

    def learn(self: Any, session: Any) -> Any:
        if type(session).__name__ == "Rehearsal":
            Spy.seen.clear()
        first = session.release(Spy(), DiscreteLaplace(session.unit))
        return after(session, first)

    return type("Spying", (), {"learn": learn})


def laplace(session: Any, query: Any) -> Any:
    return session.release(query, DiscreteLaplace(session.unit)).tolist()


def rounds_by_rows(session: Any, first: Any) -> Any:
    """As many rounds as there are many rows."""
    many = exactly(Counts(2, 6)).sum() % 2 + 1
    return [laplace(session, Counts()) for _ in range(many)]


def stops_early(session: Any, first: Any) -> Any:
    answers = []
    for _ in range(3):
        answers.append(laplace(session, Counts()))
        if exactly(Sum())[0] % 3 == 1:
            break
    return answers


def asks_the_most(session: Any, first: Any) -> Any:
    """Asks about the feature that the rows make look best."""
    best = int(exactly(Counts(0))[3] % 2)
    return laplace(session, Counts(best, 20))


def bins_from_rows(session: Any, first: Any) -> Any:
    """Codes above the largest one are left out: the domain is the rows'."""
    held = np.flatnonzero(exactly(Counts()))
    return laplace(session, replace(Counts(), size=int(held.max()) + 1 if held.size else 14))


def clips_by_rows(session: Any, first: Any) -> Any:
    return laplace(session, Sum(worth=1 + int(exactly(Sum())[0]) // 10 % 5))


@dataclass(frozen=True)
class Unpriced(Counts):
    parameter: int = 0


def parameter_from_rows(session: Any, first: Any) -> Any:
    return laplace(session, Unpriced(parameter=int(exactly(Sum())[0])))


def noise_by_rows(session: Any, first: Any) -> Any:
    """Less noise where there are more rows."""
    unit = session.unit * (1 + int(exactly(Counts()).sum()) % 2)
    return session.release(Counts(), DiscreteLaplace(unit)).tolist()


def order_by_rows(session: Any, first: Any) -> Any:
    queries = [Counts(0), Counts(1)]
    if exactly(Sum())[0] % 20 < 10:
        queries.reverse()
    return [laplace(session, query) for query in queries]


def fails_by_rows(session: Any, first: Any) -> Any:
    if exactly(Counts()).sum() % 2:
        raise ValueError("odd")
    return first.tolist()


class Hiding(Counts):
    """A parameter from rows, where a digest of fields has none."""

    def __init__(self, function: Any = None, cut: int = 0) -> None:
        super().__init__()
        self.__dict__.update({"function": function} if cut == 0 else {"cut": cut})

    @cached_property
    def cut(self) -> int:
        return 0


def constant_from_rows(session: Any, first: Any) -> Any:
    return laplace(session, Hiding(eval(f"lambda: {int(exactly(Sum())[0])}")))


def cached_from_rows(session: Any, first: Any) -> Any:
    return laplace(session, Hiding(cut=int(exactly(Sum())[0])))


def class_from_rows(session: Any, first: Any) -> Any:
    return laplace(session, type("Made", (Counts,), {"cut": int(exactly(Sum())[0])})())


def named_session(session: Any, first: Any) -> Any:
    """Returns the number of rows to a session that is called as those of jobs are."""
    return int(session._rows.size) if type(session).__name__ == "Session" else 0


def whole(counts: Any) -> bytes:
    return bytes(np.asarray(counts, np.int64))


BOXES = {
    "a deque": lambda counts: deque(counts.tolist()),
    "an array": lambda counts: array("q", counts.tolist()),
    "a bytearray": lambda counts: bytearray(whole(counts)),
    "a view of memory": lambda counts: memoryview(whole(counts)),
    "an iterator": lambda counts: iter(counts.tolist()),
    "a generator": lambda counts: (each for each in counts.tolist()),
    "a method of a dict": lambda counts: {0: counts.tolist()}.get,
}
AFTERWARDS = {
    **{
        f"returns the exact counts in {box}": lambda session, first, put=put: put(exactly(Counts()))
        for box, put in BOXES.items()
    },
    "a parameter from rows is a constant of a function": constant_from_rows,
    "a parameter from rows is in a cached property": cached_from_rows,
    "a parameter from rows is an attribute of a class": class_from_rows,
    "knows a check by the name of its session": named_session,
    "rounds by the number of rows": rounds_by_rows,
    "stops early by an exact loss": stops_early,
    "asks about what the rows make look best": asks_the_most,
    "its domain is what the rows hold": bins_from_rows,
    "clips where the rows say": clips_by_rows,
    "a parameter of its question is from rows": parameter_from_rows,
    "less noise where rows are more": noise_by_rows,
    "the order of its questions is from rows": order_by_rows,
    "fails where rows are odd": fails_by_rows,
    "returns the exact counts": lambda session, first: exactly(Counts()).tolist(),
    "returns how many rows there are": lambda session, first: [first.tolist(), int(exactly(Counts()).sum())],
    "divides by the exact number of rows": lambda session, first: (first / max(1, exactly(Counts()).sum())).tolist(),
    "leaves out what is exactly rare": lambda session, first: np.where(exactly(Counts()) < 15, 0, first).tolist(),
    "keeps what is nearest to the truth": lambda session, first: int(np.abs(first - exactly(Counts())).argmin()),
    "fits its own scale to the rows": lambda session, first: float(exactly(Sum())[0]) + float(first[0]),
    "flips a coin of its own": lambda session, first: [first.tolist(), random.random()],
}


@dataclass(frozen=True)
class Lying(Counts):
    """Counts whose sensitivity is less than the truth by some fault."""

    fault: str = ""

    def sensitivity(self, relation: Relation) -> int:
        return {"a constant for both relations": 1}.get(self.fault, super().sensitivity(relation))

    def __call__(self, rows: Any) -> Any:
        codes, size = rows.bins[self.feature], self.size
        counts = np.bincount(codes, minlength=size)[:size].astype(np.int64)
        labels = np.asarray(rows.labels).astype(np.int64)
        match self.fault:
            case "counts a row twice":
                return 2 * counts
            case "counts a row in a bin and all below":
                return np.cumsum(counts[::-1])[::-1].copy()
            case "counts pairs of rows":
                return counts * (counts - 1) // 2
            case "squares a count":
                return counts * counts
            case "weighs a rare class by its exact share":  # as many times as it is rarer
                share = max(1, int((labels == 1).sum()))
                return np.bincount(codes, weights=labels * (labels.size * 4 // share), minlength=size)[:size].astype(
                    int
                )
            case "the most frequent value":
                return np.full(size, int(counts.argmax()), np.int64)
            case "the median":
                return np.full(size, 5 * int(np.median(codes)), np.int64)
            case "the range":
                return np.full(size, int(codes.max()) - int(codes.min()), np.int64)
            case "the exact mean in hundredths":
                return np.full(size, int(100 * codes.mean()), np.int64)
            case "a count for missing that is far away":
                return np.where(np.arange(size) == rows.widths[self.feature] - 1, 9 * counts, counts)
            case "counts twice beyond 250 rows":
                return counts * (1 + (codes.size > 250))
            case "a bin of more than 120 rows counts a thousand times":
                return np.where(counts > 120, 1000 * counts, counts)
            case "leaps where a pair of codes stands 17 times":
                pairs = np.unique(codes.astype(np.int64) * 100 + rows.bins[1], return_counts=True)[1]
                return counts + 4 * int((pairs == 17).sum())
            case "floats":
                return counts.astype(np.float64) + 0.5
            case "as many answers as values there are":
                return counts[counts > 25]
        return counts


COUNTING = (
    "counts a row twice", "counts a row in a bin and all below", "counts pairs of rows", "squares a count",
    "weighs a rare class by its exact share", "the most frequent value", "the median", "the range",
    "the exact mean in hundredths", "a count for missing that is far away", "counts twice beyond 250 rows",
    "a bin of more than 120 rows counts a thousand times", "leaps where a pair of codes stands 17 times", "floats",
    "as many answers as values there are",
)  # fmt: skip


class NoClip(Sum):
    """The clip is dropped: a sum of what stands there."""

    def values(self, rows: Any) -> Any:
        return rows.bins[self.feature].astype(np.int64) * 2 * self.worth


class OneEnd(Sum):
    """Its sensitivity is from one end of the range, and the other end is further."""

    def sensitivity(self, relation: Relation) -> int:
        return 40

    def values(self, rows: Any) -> Any:
        return np.clip(40 - 10 * rows.bins[self.feature].astype(np.int64), -FULL, 40)


@dataclass(frozen=True)
class RootOfMany(Counts):
    """Says what it moves by in L2, and has noise for L1."""

    def sensitivity(self, relation: Relation) -> int:
        return 2

    def __call__(self, rows: Any) -> Any:
        return np.repeat(super().__call__(rows), 4)[: self.size * 4]

    size: int = 4 * 14


class RootLost(RootOfMany):
    def __call__(self, rows: Any) -> Any:
        counts = np.bincount(rows.bins[self.feature], minlength=14)[:14].astype(np.int64)
        return np.repeat(counts, 4)


@dataclass(frozen=True)
class HalfRange(Counts):
    """Scores that rise for one candidate and fall for the others: their range is twice what is said."""

    norm: str = "range"

    def __call__(self, rows: Any) -> Any:
        counts = super().__call__(rows)
        return 2 * counts - counts.sum()


@dataclass(frozen=True)
class OwnNoise(DiscreteLaplace):
    """A mechanism of its own: what it draws is what stands there."""

    def draw(self, values: Any, sensitivity: int) -> Any:
        return values


class Remembering(Toy):
    """Keeps what it saw in its class, from one run to the next."""

    memory: ClassVar[list[Any]] = []

    def learn(self, session: Any) -> Any:
        self.memory.append(laplace(session, Counts()))
        return len(self.memory)


class Wise(Toy):
    """Looks into the session, where rows are."""

    def learn(self, session: Any) -> Any:
        answer = laplace(session, Counts())
        return [answer, getattr(session, "_rows", None) and session._rows.size]


class LateRounds(Toy):
    """More rounds where it is played than where it is priced."""

    def learn(self, session: Any) -> Any:
        return [laplace(session, Counts()) for _ in range(2 + hasattr(session, "_rows"))]


class FewRounds(Toy):
    def learn(self, session: Any) -> Any:
        return [laplace(session, Counts()) for _ in range(2 - hasattr(session, "_rows"))]


class Retrying(Toy):
    """Asks until the answer is to its liking: how often follows from answers, and no plan says so."""

    def learn(self, session: Any) -> Any:
        answer = laplace(session, Counts())
        while answer[0] % 2:
            answer = laplace(session, Counts())
        return answer


class MoreUnit(Toy):
    """Half of the noise that it was priced with."""

    def learn(self, session: Any) -> Any:
        unit = session.unit * (2 if hasattr(session, "_rows") else 1)
        return session.release(Counts(), DiscreteLaplace(unit)).tolist()


WHOLE = {
    "the clip is dropped": asking(NoClip()),
    "a sensitivity from one end of the range": asking(OneEnd()),
    "a sensitivity of L2 with noise for L1": asking(RootLost()),
    "half of the range of scores": asking(HalfRange(), ExponentialSelection),
    "noise of its own": asking(Counts(), OwnNoise),
    "remembers runs": Remembering,
    "looks into the session": Wise,
    "more rounds than were priced": LateRounds,
    "fewer rounds than were priced": FewRounds,
    "asks again until it likes the answer": Retrying,
    "less noise than was priced": MoreUnit,
    "noise for another norm": asking(replace(Counts(), norm="l2"), DiscreteLaplace),
}
