"""A learner of somebody else's: deep random trees that grow only where rows are, in the idea of Lumberjack.

Layer by layer the leaves of all trees are counted by class, with noise. A leaf that clearly holds rows is split anew
by chance, the oftener by a test the better it tells the classes apart by a noisy histogram of its feature; the others
stay. What a leaf says in the end are its counts, drawn to what the leaf said that it came from.
"""

from math import log, sqrt
from random import Random
from typing import Any

import numpy as np

LINK = 1000  # parts of a logit
FIRST = 0.1  # of the budget (of the squares of all shares): histograms
GATHERED = 4.0  # trees that say the same are as sure as this many by themselves
MOST_LEAVES = 1 << 15  # so many are counted by two classes at once


class Leaf:
    """Codes of each feature that reach it, the log odds of its second class, and whether it is to be split."""

    def __init__(self, codes: list[frozenset[int]], odds: float) -> None:
        self.codes, self.odds, self.full = codes, odds, True


class DeepForest:
    """So many `trees`, each of `layers` that are `levels` deep; `last`: the part of the budget that the last one has;
    `full`: how many deviations of the noise a leaf must hold to be split.
    """

    def __init__(self, trees: int = 40, layers: int = 6, levels: int = 2, last: float = 0.6, full: float = 10) -> None:
        self.trees, self.layers, self.levels = int(trees), int(layers), int(levels)
        self.last, self.full = float(last), float(full)

    def learn(self, session: Any) -> dict[str, Any]:
        """Grow the trees, and return them with the log odds of their leaves."""
        self.features, self.chance = session.public.features, Random(7)  # public: the same for whatever rows
        self.room = MOST_LEAVES - self.trees
        share = f"{sqrt(FIRST / len(self.features)):.4f}"
        places = range(len(self.features))
        tables = [np.maximum(session.histogram([at], True, share, "gaussian"), 1) for at in places]
        self.tests = [test for at, table in enumerate(tables) for test in self.weighed(at, table)]
        first, second = tables[0].sum(axis=1)
        every = [frozenset(range(feature.bins)) for feature in self.features]
        forest: list[Any] = [Leaf(every, log(second / first)) for _ in range(self.trees)]
        for layer in range(self.layers):
            early = (1 - FIRST - self.last) / max(1, self.layers - 1)
            forest = [self.grow(tree) for tree in forest]
            self.count(session, forest, sqrt(self.last if layer == self.layers - 1 else early))
        says = [numbered(tree, lambda leaf: round(LINK * leaf.odds)) for tree in forest]
        return {"trees": says, "constant": 0, "link": GATHERED / (LINK * self.trees)}

    def weighed(self, at: int, table: Any) -> Any:
        """Yield the tests of a feature, with the codes that pass, and how well each tells the classes apart."""
        feature, shares = self.features[at], table / table.sum(axis=1, keepdims=True)
        ordered = feature.kind not in ("categorical", "boolean")
        for code in range(feature.bins - 2 if ordered else feature.bins):
            passing = range(code + 1, feature.bins - 1) if ordered else (code,)
            apart = float(np.diff(shares[:, [*passing]].sum(axis=1))[0])
            yield "above" if ordered else "is", at, code, frozenset(passing), abs(apart) + 1e-9

    def grow(self, tree: Any) -> Any:
        """Split the full leaves of a tree."""
        if not isinstance(tree, Leaf):
            return [*tree[:3], self.grow(tree[3]), self.grow(tree[4])]
        return self.split(tree, self.levels) if tree.full else tree

    def split(self, leaf: Leaf, levels: int) -> Any:
        """Return a random tree below a leaf."""
        able = [test for test in self.tests if leaf.codes[test[1]] & test[3] and leaf.codes[test[1]] - test[3]]
        if not levels or not able or not self.room:
            return leaf
        self.room -= 1
        ((test, at, code, passing, _),) = self.chance.choices(able, [each[-1] for each in able])
        codes = leaf.codes[at]
        sides = [[*leaf.codes[:at], own, *leaf.codes[at + 1 :]] for own in (codes & passing, codes - passing)]
        return [test, at, code, *(self.split(Leaf(side, leaf.odds), levels - 1) for side in sides)]

    def count(self, session: Any, forest: list[Any], share: float) -> None:
        """Count the leaves of all trees, and have each say what its own do."""
        public, leaves = session.public, [leaves_of(tree) for tree in forest]
        noise = sqrt(2 * log(1.25 / float(public.delta)) * self.trees) / float(public.epsilon) / share
        asked = [numbered(tree, own.index) for tree, own in zip(forest, leaves, strict=True)]
        for own, counts in zip(leaves, session.leaves(asked, True, f"{share:.4f}", "gaussian"), strict=True):
            for leaf, (first, second) in zip(own, counts.T, strict=True):
                chance = 1 / (1 + np.exp(-leaf.odds))
                first, second = max(first, 0) + noise * (1 - chance), max(second, 0) + noise * chance
                leaf.odds, leaf.full = log(second / first), first + second > self.full * noise


def leaves_of(tree: Any) -> list[Leaf]:
    """Return the leaves of a tree."""
    return [tree] if isinstance(tree, Leaf) else [leaf for side in tree[3:] for leaf in leaves_of(side)]


def numbered(tree: Any, number: Any) -> Any:
    """Return a tree with a number in the place of each leaf."""
    return number(tree) if isinstance(tree, Leaf) else [*tree[:3], *(numbered(side, number) for side in tree[3:])]
