"""A learner of somebody else's: naive Bayes with a tree of pairs, chosen privately as MST chooses, given the class.

First a noisy histogram of each feature by class. From them follows what each pair would be, were its features
independent given the class: one by one the pairs that are furthest from that are chosen, until they join all features
in a tree. Of these alone there is a noisy histogram by class, and a pair adds to the log odds what it says beyond its
two features. With `trust` 1 that is the Bayes rule of a distribution whose features hang together along the tree.
"""

from math import sqrt
from typing import Any

import numpy as np

LINK = 1000  # parts of a logit
FEATURES, PAIRS = 0.4, 0.45  # of the budget, in squares: histograms of features and of pairs; the rest is for choices


class TreeOfPairs:
    """`groups`: how many of a feature's codes pairs tell apart at most; `sure`: how many deviations of the noise the
    rows of a cell have to differ by; `trust`: the part of what a pair says that counts.
    """

    def __init__(self, groups: int = 5, sure: float = 3, trust: float = 0.5) -> None:
        self.groups, self.sure, self.trust = int(groups), float(sure), float(trust)

    def learn(self, session: Any) -> dict[str, Any]:
        """Ask for features, choose pairs, ask for them, and return what all add to the log odds."""
        features = session.public.features
        number = len(features)
        share = sqrt(FEATURES / number)
        rows = [np.maximum(self.ask(session, [at], share), 0) + 1.0 for at in range(number)]  # (2, bins)
        sizes = np.mean([each.sum(axis=1) for each in rows], axis=0)
        shapes = [each / each.sum(axis=1, keepdims=True) for each in rows]
        pairs = self.choose(session, [shape * sizes[:, None] for shape in shapes], sizes)
        grouped = [self.group(feature, each.sum(axis=0)) for feature, each in zip(features, rows, strict=True)]
        terms = [np.rint(LINK * np.log(shape[1] / shape[0])).astype(int).tolist() for shape in shapes]
        share = sqrt(PAIRS / max(1, len(pairs)))
        self.noise = sqrt(2 * np.log(1.25 / float(session.public.delta))) / float(session.public.epsilon) / share
        added = [self.pair(self.ask(session, pair, share), pair, grouped, shapes, sizes) for pair in pairs]
        constant = round(LINK * float(np.log(sizes[1] / sizes[0])))
        return {"terms": terms, "pairs": added, "constant": constant, "link": 1 / LINK}

    def ask(self, session: Any, features: list[int], share: float) -> Any:
        """Return a noisy histogram by class."""
        return session.histogram(features, by_class=True, share=f"{share:.4f}", noise="gaussian")

    def choose(self, session: Any, rows: list[Any], sizes: Any) -> list[list[int]]:
        """Choose the pairs of a tree, one by one the furthest from independence given the class."""
        part = list(range(len(rows)))  # of the forest so far, that each feature is in
        chosen: list[list[int]] = []
        share = sqrt((1 - FEATURES - PAIRS) / max(1, len(rows) - 1))
        while len(set(part)) > 1:
            able = [[a, b] for a in range(len(rows)) for b in range(a + 1, len(rows)) if part[a] != part[b]]
            given = [rows[a][:, :, None] * rows[b][:, None] / sizes[:, None, None] for a, b in able]
            place = session.furthest(list(zip(able, given, strict=True)), by_class=True, share=f"{share:.4f}")
            a, b = able[place]
            part = [part[a] if each == part[b] else each for each in part]
            chosen.append([a, b])
        return chosen

    def group(self, feature: Any, rows: Any) -> list[int]:
        """Put codes into groups of about as many rows: of a number neighbours, else the rarest together."""
        if feature.kind in ("categorical", "boolean"):
            order = np.argsort(-rows, kind="stable")
            groups = np.empty(len(rows), int)
            groups[order] = np.minimum(np.arange(len(rows)), self.groups - 1)
            return groups.tolist()
        below = (np.cumsum(rows[:-1]) - rows[:-1] / 2) / rows[:-1].sum()
        groups = np.unique((below * self.groups).astype(int), return_inverse=True)[1].tolist()
        return [*groups, groups[-1]]

    def pair(self, cells: Any, pair: list[int], grouped: list[Any], shapes: list[Any], sizes: Any) -> dict[str, Any]:
        """Return what a pair adds in each cell: the log odds of its rows, less that of its features; of rows only as
        many as are surely no noise.
        """
        first, second = (np.eye(max(grouped[at]) + 1)[grouped[at]] for at in pair)  # (codes, groups)
        parts = [shapes[at] @ own for at, own in zip(pair, (first, second), strict=True)]
        alone = sizes[:, None, None] * parts[0][:, :, None] * parts[1][:, None]  # were its features independent
        more = np.einsum("kab,ai,bj->kij", cells, first, second) - alone
        noise = self.sure * self.noise * np.sqrt(np.outer(first.sum(axis=0), second.sum(axis=0)))
        joint = np.maximum(alone + np.sign(more) * np.maximum(np.abs(more) - noise, 0), alone / 10)
        ratio = np.log(joint / joint.sum(axis=(1, 2), keepdims=True) * sizes[:, None, None] / alone)
        terms = np.rint(LINK * self.trust * (ratio[1] - ratio[0])).astype(int).tolist()
        return {"features": pair, "groups": [grouped[at] for at in pair], "terms": terms}
