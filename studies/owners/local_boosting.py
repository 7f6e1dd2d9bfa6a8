"""The local paper's three learners (Algorithms 4 to 7): as printed, and strict, with label and weight in the report.

As printed: nearest centroids send weight and label of every row in the clear, and a row gets a share of epsilon; trees
send 2 d numbers; regressions their parameters. One change was needed: weights are normalised for each owner of trees,
or the mechanism's input leaves [-1, 1] and nothing is private. Strict: an owner sends one report of all of its rows, at
the whole epsilon. Floats and seeds: nothing here is certified or released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from studies.owners.local_mechanisms import Mechanism
from studies.owners.local_sets import LocalSet, Shape

Floats = NDArray[np.float64]
Learner = Callable[["Group", Mechanism, float], "Linear | Stump"]
CAP = np.log(99)  # of a base learner's weight alpha: an error of 1 %


@dataclass(frozen=True)
class Linear:
    """1 where x . weights + constant > 0, else -1."""

    weights: Floats
    constant: float

    def __call__(self, X: Floats) -> Floats:
        return np.where(X @ self.weights.astype(X.dtype) + X.dtype.type(self.constant) > 0, 1.0, -1.0)


@dataclass(frozen=True)
class Stump:
    """`below` or `above` a threshold of one feature."""

    feature: int
    threshold: float
    below: float
    above: float

    def __call__(self, X: Floats) -> Floats:
        return np.where(X[:, self.feature] >= self.threshold, self.above, self.below)


@dataclass(frozen=True)
class Group:
    """The owners of one round, X (owners, rows, d), y and raw weights (owners, rows), and what is public to them."""

    X: Floats
    y: Floats
    raw: Floats
    thresholds: Floats  # (d,), from the user's own rows
    reach: float  # the length that few vectors of owners exceed, from the user's own rows; of parameters their size

    @property
    def weights(self) -> Floats:
        """Of sum 1 for each owner."""
        return self.raw / self.raw.sum(axis=1, keepdims=True)

    @property
    def signs(self) -> Floats:
        """Where a row lies above its feature's threshold: -1 or 1 (owners, rows, d)."""
        return np.where(self.thresholds <= self.X, 1.0, -1.0)


@dataclass
class Boosted:
    """What came out: base learners with their weights and errors, and the error on tests after each."""

    errors: list[float] = field(default_factory=list)
    alphas: list[float] = field(default_factory=list)
    base_errors: list[float] = field(default_factory=list)
    groups: int = 0  # of owners that were asked, those of dropped rounds too


def boost(
    data: LocalSet, shape: Shape, learner: Learner, mechanism: Mechanism, epsilon: float, rng: np.random.Generator,
    reach: float = 1.0, most: int | None = None,
) -> Boosted:  # fmt: skip
    """Algorithm 4: disjoint groups of owners in turn; alpha by the user's own labelled rows; dropped where it is not
    positive, and no owner is asked twice. At `most` so many groups are asked: as many as rounds, where it is None. The
    reach is public.
    """
    (X, y), (own, truth), (tests, asked) = data.owners, data.user, data.test
    order, size = rng.permutation(len(y)), shape.owners * shape.rows
    found, members = Boosted(), list[tuple[float, Linear | Stump]]()
    weight, votes = np.ones(len(truth)), np.zeros(len(asked))
    for start in range(0, len(order) - size + 1, size):
        if len(members) == shape.rounds or found.groups == (most or shape.rounds):
            break
        held = order[start : start + size]
        rows, labels, raw = X[held], y[held], np.full(size, 1 / shape.rows)
        for alpha, member in members:
            raw *= np.exp(alpha * (member(rows) != labels))
        cube = rows.reshape(shape.owners, shape.rows, -1).astype(np.float64)
        known = labels.reshape(cube.shape[:2]).astype(np.float64)
        group = Group(cube, known, raw.reshape(cube.shape[:2]), data.thresholds, reach)
        member, found.groups = learner(group, mechanism, epsilon), found.groups + 1
        wrong = member(own) != truth
        error = float(np.clip((weight * wrong).sum() / weight.sum(), 1e-6, 1 - 1e-6))
        alpha = min(float(np.log((1 - error) / error)), CAP)
        if alpha <= 0:
            continue
        members.append((alpha, member))
        weight *= np.exp(alpha * wrong)
        weight /= weight.mean()
        votes += alpha * member(tests)
        found.alphas.append(alpha)
        found.base_errors.append(error)
        found.errors.append(float(np.mean((votes > 0) != (asked > 0))))
    if not members:  # nobody was better than a coin: so is the model
        found.errors.append(0.5)
    return found


def centroid_line(up: Floats, down: Floats) -> Linear:
    """The nearest of two centroids."""
    return Linear(2 * (up - down), float(down @ down - up @ up))


def printed_ncc(group: Group, mechanism: Mechanism, epsilon: float) -> Linear:
    """Algorithm 5: each row by itself at a share of epsilon; its label and its weight in the clear."""
    up, down = printed_centroids(group, mechanism, epsilon)
    return centroid_line(up, down)


def printed_centroids(group: Group, mechanism: Mechanism, epsilon: float) -> tuple[Floats, Floats]:
    """Of label 1 and of label -1: weighted means of perturbed rows (d,)."""
    rows, d = group.X.shape[1:]
    noisy, y, w = mechanism(group.X.reshape(-1, d), epsilon / rows), group.y.ravel(), group.raw.ravel()
    up, down = (w * (y == label) @ noisy / max((w * (y == label)).sum(), 1e-12) for label in (1, -1))
    return up, down


def ncc_vectors(group: Group) -> Floats:
    """(owners, 2 d + 1) within [-1, 1]: sums of w x, of w y x, and of w y."""
    w, y = group.weights, group.y
    signed = w * y
    means, slopes = (np.einsum("hn,hnd->hd", by, group.X) for by in (w, signed))
    return np.concatenate([means, slopes, signed.sum(axis=1, keepdims=True)], axis=1)


def strict_ncc(group: Group, mechanism: Mechanism, epsilon: float) -> Linear:
    """One report an owner of what centroids are made of."""
    d = group.X.shape[2]
    mean = mechanism(ncc_vectors(group), epsilon).mean(axis=0)
    means, slopes, bias = mean[:d], mean[d : 2 * d], float(np.clip(mean[-1], -0.9, 0.9))
    return centroid_line((means + slopes) / (1 + bias), (means - slopes) / (1 - bias))


def table_vectors(group: Group) -> Floats:
    """(owners, 2 d): weighted labels below each threshold, and above it."""
    signed, above = group.weights * group.y, group.signs > 0
    low, high = (np.einsum("hn,hnd->hd", signed, side) for side in (~above, above))
    return np.concatenate([low, high], axis=1)


def printed_stump(group: Group, mechanism: Mechanism, epsilon: float) -> Stump:
    """Algorithm 6: the feature whose two sums are together largest."""
    mean = mechanism(table_vectors(group), epsilon).mean(axis=0)
    return _stump(group, *np.split(mean, 2))


def stump_vectors(group: Group) -> Floats:
    """(owners, d + 1): sums of w y A_j, and of w y."""
    signed = group.weights * group.y
    return np.concatenate([np.einsum("hn,hnd->hd", signed, group.signs), signed.sum(axis=1, keepdims=True)], axis=1)


def strict_stump(group: Group, mechanism: Mechanism, epsilon: float) -> Stump:
    """The same from d + 1 numbers: both sums follow from them."""
    mean = mechanism(stump_vectors(group), epsilon).mean(axis=0)
    return _stump(group, (mean[-1] - mean[:-1]) / 2, (mean[-1] + mean[:-1]) / 2)


def _stump(group: Group, below: Floats, above: Floats) -> Stump:
    at = int(np.argmax(np.abs(below) + np.abs(above)))
    low, high = (1.0 if side[at] > 0 else -1.0 for side in (below, above))
    return Stump(at, float(group.thresholds[at]), low, high)


def own_regressions(X: Floats, y: Floats, weights: Floats, ridge: float = 1.0, steps: int = 8) -> Floats:
    """Every owner's ridge logistic regression (owners, d), without a constant, as the paper has it: Newton's method."""
    owners, rows, d = X.shape
    theta, w = np.zeros((owners, d)), weights * rows
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(np.einsum("hnd,hd->hn", X, theta), -30, 30)))
        slope = np.einsum("hnd,hn->hd", X, w * (chance - (y + 1) / 2)) + ridge * theta
        curve = np.matmul(X.transpose(0, 2, 1), X * (w * chance * (1 - chance))[..., np.newaxis]) + ridge * np.eye(d)
        theta -= np.linalg.solve(curve, slope[..., np.newaxis])[..., 0]
    return theta


def clipped_parameters(group: Group, size: float) -> Floats:
    """Every owner's regression over a public size, clipped to [-1, 1]: (owners, d)."""
    return np.clip(own_regressions(group.X, group.y, group.weights) / size, -1, 1)


def printed_lr(group: Group, mechanism: Mechanism, epsilon: float) -> Linear:
    """Algorithm 7, its loss put right."""
    return Linear(mechanism(clipped_parameters(group, group.reach), epsilon).mean(axis=0) * group.reach, 0.0)


def on_sphere(mechanism: Mechanism, reach: float) -> Mechanism:
    """A mechanism of unit vectors for vectors of about `reach`: longer ones are cut, and one number more makes the
    length 1, so it stays unbiased.
    """

    def many(x: Floats, epsilon: float) -> Floats:
        scaled = x / reach
        scaled = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
        rest = np.sqrt(np.maximum(0.0, 1 - (scaled**2).sum(axis=1, keepdims=True)))
        return mechanism(np.concatenate([scaled, rest], axis=1), epsilon)[:, :-1] * reach

    return many


def reach_of(data: LocalSet, shape: Shape, vectors: Callable[[Group], Floats], share: float = 0.9) -> float:
    """The length that this share of vectors does not exceed, where the user's own rows are dealt out to owners."""
    group = user_group(data, shape)
    return float(np.quantile(np.linalg.norm(vectors(group), axis=1), share))


@lru_cache(maxsize=1)
def size_of(data: LocalSet) -> float:
    """The size that one in a hundred parameters exceeds, where the user's own rows are dealt out to owners."""
    group = user_group(data, data.shapes["lr"])
    return float(np.quantile(np.abs(own_regressions(group.X, group.y, group.weights)), 0.99))


def user_group(data: LocalSet, shape: Shape) -> Group:
    """The user's own rows as if they were those of owners, weights all alike."""
    X, y = data.user
    owners = min(len(y) // shape.rows, 1000)
    kept = owners * shape.rows
    cube = X[:kept].reshape(owners, shape.rows, -1).astype(np.float64)
    even = np.full((owners, shape.rows), 1 / shape.rows)
    return Group(cube, y[:kept].reshape(owners, shape.rows).astype(np.float64), even, data.thresholds, 1.0)
