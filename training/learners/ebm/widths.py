"""How many numbers each of `ebm`'s sums has at most, so that shares of it are as long whatever was answered before."""

from __future__ import annotations

from training.learners.base.cut_points import CellCounts, InBins
from training.learners.ebm.pairs import GROUPS, SEEN
from training.learners.ebm.queries import JointCounts, LeafSums, PairSums
from training.session.session import Public, Query


def most_numbers(query: Query, public: Public) -> int:
    """Return how many numbers a query answers with at most, where answers before it decide on bins, leaves and
    groups.
    """
    features, inner = (query.features, query.query) if isinstance(query, InBins) else (public.features, query)
    if isinstance(inner, CellCounts):
        return int(inner.of.size)
    outputs = inner.residuals.outputs if isinstance(inner, LeafSums | PairSums) else 1
    if isinstance(inner, PairSums):
        return len(inner.joints) * (SEEN + 1) ** 2 * outputs
    bins = max(feature.bins for feature in features)
    paired = isinstance(inner, JointCounts) or bool(getattr(inner, "joints", ()))
    cells = (GROUPS + 1) ** 2 if paired else 0
    return max(inner.size, outputs * max(bins, cells))
