"""The local paper's data: its synthetic set, and two pairs of pictures as histograms of visual words.

Every set is rows within [-1, 1] and labels of -1 or 1, in three parts that share no row (and no picture, before
pictures are turned): what the data user has, what owners have, what all are tested on. Brazil's census is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import make_classification

Floats = NDArray[np.float64]
SIDE, CELL, BLOCK, ORIENTED = 28, 4, 3, 9
CUTS = 32  # that are tried for a threshold
TURN, SHIFT = 10.0, 1.0  # degrees and pixels, of a picture that is turned and shifted


@dataclass(frozen=True)
class Shape:
    """How one of the paper's learners is run on a set: owners of a round, rows of each, rounds."""

    owners: int
    rows: int
    rounds: int = 10


@dataclass(frozen=True, eq=False)
class LocalSet:
    """X (n, d), y (n,) of three parts, and the paper's protocol for each of its learners."""

    name: str
    title: str
    user: tuple[Floats, Floats]
    owners: tuple[Floats, Floats]
    test: tuple[Floats, Floats]
    shapes: dict[str, Shape]
    groups: int | None  # of a feature, for two aggregators; None: by the public rule

    @property
    def features(self) -> int:
        return self.owners[0].shape[1]

    @cached_property
    def thresholds(self) -> Floats:
        """For each feature the threshold (d,) of the least error on the user's own rows, either way round."""
        X, y = self.user
        found, share = [], y / len(y)
        for column in X.T:
            tried = np.unique(np.quantile(column, np.linspace(0.02, 0.98, CUTS)))
            gain = [abs(float(share @ np.where(column >= cut, 1.0, -1.0))) for cut in tried]
            found.append(tried[int(np.argmax(gain))])
        return np.array(found)


def synthetic(seed: int, rows: int = 1_000_000) -> LocalSet:
    """75 % owners', 20 % tests, 5 % the user's; x over max |x|, as the paper has it."""
    X, y = make_classification(rows, 20, n_informative=10, n_redundant=10, random_state=seed)
    X, y = (X / np.abs(X).max(axis=0)).astype(np.float32), (2 * y - 1).astype(np.float32)
    order = np.random.default_rng(seed).permutation(rows)
    user, test, owners = np.split(order, [rows // 20, rows // 4])
    scale = rows / 1_000_000
    shapes = {
        "ncc": Shape(round(2000 * scale), 4),
        "stump": Shape(round(1000 * scale), 80, 9),  # 10 rounds would be more rows than owners have
        "lr": Shape(round(5000 * scale), 80, 1),
    }
    parts = [(X[part], y[part]) for part in (user, owners, test)]
    return LocalSet(f"synthetic {seed}", f"synthetic, seed {seed}", *parts, shapes, None)


def fashion(folder: Path, words: int = 100, copies: int = 4) -> LocalSet:
    """T-shirts against shirts: 1,000 of each the user's, 5,000 of each the owners', turned to 20,000; the publisher's
    tests.
    """
    pictures, labels = _pictures(folder / "fashion_tshirt_shirt_train.parquet", 6)
    tests = _pictures(folder / "fashion_tshirt_shirt_test.parquet", 6)
    return _worded("fashion", "Fashion, T-shirt / shirt", pictures, labels, tests, words, copies, 3)


def digits(folder: Path, words: int = 50, copies: int = 100) -> LocalSet:
    """Fours against nines, of a sample of 5,000 digits: 100 of each the user's, 200 of each the owners', turned to
    20,000, and 200 of each to be tested on.
    """
    pictures, labels = _pictures(folder / "mnist5k.parquet", 9, 4)
    order = np.random.default_rng(0).permutation(len(labels))
    sorts = [order[labels[order] == sort] for sort in (-1, 1)]
    tested = np.concatenate([one[: 2 * len(one) // 5] for one in sorts])
    rest = np.concatenate([one[2 * len(one) // 5 :] for one in sorts])
    tests = pictures[tested], labels[tested]
    return _worded("mnist", "MNIST, 4 / 9 (sample)", pictures[rest], labels[rest], tests, words, copies, 4, few=True)


def _pictures(file: Path, positive: int, negative: int | None = None) -> tuple[Floats, Floats]:
    table = pq.read_table(file)
    kind = table["target"].to_numpy()
    kept = (kind == positive) | ((kind == negative) if negative is not None else True)
    flat = np.stack([table[f"p{at}"].to_numpy() for at in range(SIDE * SIDE)], axis=1)
    return flat[kept].reshape(-1, SIDE, SIDE) / 255.0, np.where(kind[kept] == positive, 1.0, -1.0)


def _worded(
    name: str, title: str, pictures: Floats, labels: Floats, tests: tuple[Floats, Floats], words: int, copies: int,
    groups: int, few: bool = False,
) -> LocalSet:  # fmt: skip
    """Visual words from the user's own pictures; a row is how often each word is in a picture."""
    rng = np.random.default_rng(0)
    own, held = np.split(rng.permutation(len(labels)), [len(labels) // (3 if few else 6)])
    again = np.repeat(own, max(1, copies // 10) - 1)  # few pictures are the user's: it turns them, too
    enlarged, held = np.concatenate([own, again]), np.repeat(held, copies)
    parts = [
        (np.concatenate([pictures[own], turned(pictures[again], rng)]), labels[enlarged]),
        (turned(pictures[held], rng), labels[held]),
        tests,
    ]
    described = [descriptors(part) for part, _ in parts]
    book = MiniBatchKMeans(words, random_state=0, n_init=1, batch_size=4096, max_iter=30)
    book.fit(described[0].reshape(-1, described[0].shape[-1]))
    counted = [_histograms(each, book.cluster_centers_) for each in described]
    most = np.maximum(np.quantile(counted[0], 0.99, axis=0), 1.0)
    scaled = [np.clip(2 * each / most - 1, -1, 1) for each in counted]
    mixed = rng.permutation(len(scaled[1]))
    total = len(mixed)
    shapes = {"ncc": Shape(total // 40, 4), "stump": Shape(total // 200, 20), "lr": Shape(total // 400, 40, 1)}
    user, owners, tested = zip(scaled, (labels for _, labels in parts), strict=True)
    return LocalSet(name, title, user, (owners[0][mixed], owners[1][mixed]), tested, shapes, groups)


def turned(pictures: Floats, rng: np.random.Generator) -> Floats:
    """Each picture (n, 28, 28) turned and shifted at random, as the paper enlarges its sets."""
    found, middle = np.empty_like(pictures), np.array([SIDE - 1, SIDE - 1]) / 2
    angles = np.deg2rad(rng.uniform(-TURN, TURN, len(pictures)))
    shifts = rng.uniform(-SHIFT, SHIFT, (len(pictures), 2))
    for at, (angle, shift) in enumerate(zip(angles, shifts, strict=True)):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        found[at] = ndimage.affine_transform(pictures[at], turn, middle - turn @ middle + shift, order=1)
    return found


def descriptors(pictures: Floats) -> NDArray[np.float32]:
    """Histograms of oriented gradients (n, 25, 81): of cells of 4 x 4, in blocks of 3 x 3 of length at most 1."""
    found = []
    for start in range(0, len(pictures), 4096):
        part = pictures[start : start + 4096].astype(np.float32)
        up, across = np.gradient(part, axis=(1, 2))
        length, angle = np.hypot(up, across), np.arctan2(up, across) % np.pi
        sort = np.minimum((angle * (ORIENTED / np.pi)).astype(np.int64), ORIENTED - 1)
        side, blocked = SIDE // CELL, SIDE // CELL - BLOCK + 1
        cells = np.zeros((len(part), side, side, ORIENTED), np.float32)
        for one in range(ORIENTED):
            held = np.where(sort == one, length, 0).reshape(-1, side, CELL, side, CELL)
            cells[..., one] = held.sum(axis=(2, 4))
        moves = [(down, right) for down in range(BLOCK) for right in range(BLOCK)]
        blocks = np.concatenate([cells[:, a : blocked + a, b : blocked + b] for a, b in moves], axis=-1)
        blocks /= np.linalg.norm(blocks, axis=-1, keepdims=True) + 0.5
        found.append(blocks.reshape(len(part), -1, BLOCK * BLOCK * ORIENTED))
    return np.concatenate(found)


def _histograms(described: NDArray[np.float32], centres: Floats) -> Floats:
    """How often each word (n, words) is the nearest to a picture's descriptors."""
    words, found = len(centres), np.empty((len(described), len(centres)))
    near = (centres**2).sum(axis=1).astype(np.float32) / 2
    across = centres.T.astype(np.float32)
    for start in range(0, len(described), 2048):
        part = described[start : start + 2048]
        named = (part @ across - near).argmax(axis=2) + words * np.arange(len(part))[:, np.newaxis]
        found[start : start + 2048] = np.bincount(named.ravel(), minlength=words * len(part)).reshape(-1, words)
    return found
