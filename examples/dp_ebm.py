"""A whole program that reads rows: the DP-EBM of interpret (Microsoft), vouched for by mu.

What a voucher has to read: the library's noise is that of a row that is added or removed, in bins and in boosting, and
its Gaussians compose to one mu. Two things are other than it has them: noise comes from numpy, which the system seeds
(the library's own opens a file for that), and bins are made by the number of rows that is declared, for the true one is
private. Both are floats, whose last digits nobody looked at.

    dpserve learner admit examples/dp_ebm.py:DpEbm --name dpebm --vouched mu --dataset adult \\
        --module interpret.privacy --module interpret.utils._native:Native.get_native_singleton \\
        --reason "two of us read the paper and this file"
"""

from math import hypot
from typing import Any

import numpy as np

GRID = 1 << 16  # parts of a logit
DELTA, BINNING = 1e-6, 0.1  # what the library splits its epsilon by


class DpEbm:
    """`rounds` of boosting, `rate` of learning, and at most so many `bins` of a feature."""

    def __init__(self, rounds: int = 300, rate: float = 0.01, bins: int = 32) -> None:
        self.rounds, self.rate, self.bins = int(rounds), float(rate), int(bins)

    def learn(self, session: Any) -> dict[str, Any]:
        """Fit it to the codes, and return what each code adds."""
        from interpret.privacy import DPExplainableBoostingClassifier
        from interpret.utils import _preprocessor
        from interpret.utils._native import Native

        features, random = session.public.features, np.random.default_rng()
        least = session.public.records / self.bins

        def draw(native: Any, rng: Any, stddev: float, count: int) -> Any:
            return random.normal(0.0, stddev, count)

        def merge(codes: Any, weights: Any, noise: float, bins: int, low: float, high: float, rng: Any = None) -> Any:
            counts = np.bincount(codes.astype(int), minlength=int(high) + 1)
            noisy = np.maximum(counts + random.normal(0.0, noise, counts.size), 0.0)
            cuts, sizes, size = list[float](), list[float](), 0.0
            for code, more in enumerate(noisy):
                size += more
                if size >= least:
                    cuts, sizes, size = [*cuts, code + 0.5], [*sizes, size], 0.0
            sizes = [*sizes[:-1], sizes[-1] + size] if sizes else [least]
            return np.array(cuts[:-1]), [0, *sizes]

        Native.generate_gaussian_random = draw
        _preprocessor.private_numeric_binning = merge
        model = DPExplainableBoostingClassifier(
            feature_types=["continuous"] * len(features),
            privacy_bounds={at: (0.0, float(feature.bins - 1)) for at, feature in enumerate(features)},
            epsilon=epsilon_of(float(session.public.price["mu"])),
            delta=DELTA,
            composition="gdp",
            bin_budget_frac=BINNING,
            max_rounds=self.rounds,
            learning_rate=self.rate,
            max_bins=self.bins,
            n_jobs=1,
            random_state=int(random.integers(1 << 31)),  # of splits alone
        )
        model.fit(session.rows.codes.T.astype(float), session.rows.target)
        terms = []
        for feature, scores, (cuts, *_) in zip(features, model.term_scores_, model.bins_, strict=True):
            of = np.searchsorted(cuts, np.arange(feature.bins)) + 1  # the first is of missing values, which have a code
            terms.append(np.rint(GRID * scores[of]).astype(int).tolist())
        return {"terms": terms, "constant": round(GRID * float(model.intercept_[0])), "link": 1 / GRID}


def epsilon_of(mu: float) -> float:
    """Return the epsilon at DELTA whose two parts, as the library splits it, are mu together."""
    from interpret.utils._privacy import calc_gdp_noise_multi

    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        parts = (1 / calc_gdp_noise_multi(1, part * middle, DELTA / 2) for part in (BINNING, 1 - BINNING))
        low, high = (middle, high) if hypot(*parts) <= mu else (low, middle)
    return low
