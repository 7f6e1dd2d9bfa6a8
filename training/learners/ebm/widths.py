"""How many numbers each of `ebm`'s sums has at most, so that shares of it are as long whatever was answered before."""

from __future__ import annotations

from training.learners.base.cut_points import CellCounts, InBins
from training.learners.ebm.class_queries import ClassPairSums, ClassSums
from training.learners.ebm.pairs import GROUPS, SEEN
from training.learners.ebm.queries import JointCounts, PairSums
from training.session.session import Public, Query


def most_numbers(query: Query, public: Public) -> int:
    """Return how many numbers a query answers with at most, where answers before it decide on bins, leaves and
    groups.
    """
    features, inner = (query.features, query.query) if isinstance(query, InBins) else (public.features, query)
    if isinstance(inner, CellCounts):
        return int(inner.of.size)
    outputs = max(1, len(public.classes or ())) if isinstance(inner, ClassSums | ClassPairSums) else 1
    if isinstance(inner, PairSums | ClassPairSums):
        return len(inner.joints) * (SEEN + 1) ** 2 * outputs
    bins = max(feature.bins for feature in features)
    paired = isinstance(inner, JointCounts) or bool(getattr(inner, "joints", ()))
    cells = (GROUPS + 1) ** 2 if paired else 0
    return max(inner.size, outputs * max(bins, cells))
