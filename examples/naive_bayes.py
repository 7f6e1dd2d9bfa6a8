"""A learner of somebody else's: naive Bayes by noisy histograms of each feature and class.

It runs in a sealed process that has no rows. `dpserve learner check examples/naive_bayes.py:NaiveBayes` plays it.
"""

from typing import Any

import numpy as np

GRID = 1 << 16  # parts of a logit


class NaiveBayes:
    """Log odds of each bin, from counts that are noisy; `prior`: how many rows of each class every bin is given."""

    def __init__(self, prior: float = 4.0) -> None:
        self.prior = float(prior)  # which the command line gives as a text

    def learn(self, session: Any) -> dict[str, Any]:
        """Ask for a histogram of each feature by class, and return what each bin adds to the log odds."""
        features = session.public.features
        share = f"{1 / len(features):.4f}"
        terms, totals = [], np.zeros(2)
        for at in range(len(features)):
            counts = session.histogram([at], by_class=True, share=share)  # (2, bins)
            rows = np.maximum(counts, 0) + self.prior
            totals += rows.sum(axis=1)
            chances = rows / rows.sum(axis=1, keepdims=True)
            terms.append(np.rint(GRID * np.log(chances[1] / chances[0])).astype(int).tolist())
        constant = round(GRID * float(np.log(totals[1] / totals[0])))
        return {"terms": terms, "constant": constant, "link": 1 / GRID}
