"""A learner of somebody else's whose queries are OpenDP's: naive Bayes from counts by class and bin, each by a
transformation of OpenDP, whose stability map says how far one row moves it. dpserve adds the noise.

`pip install opendp`, then `dpserve learner admit examples/opendp_counts.py:OpenDPBayes --name opendp --reason TEXT
--module opendp.prelude --module opendp._data --declared`.
"""

from typing import Any

import numpy as np
import opendp.prelude as dp

GRID = 1 << 16  # parts of a logit


def counts_of(cells: int) -> Any:
    """Return OpenDP's transformation that counts each of so many whole numbers, and drops all others."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    return dp.t.make_count_by_categories(*space, categories=list(range(cells)), null_category=False)


class CountsByClass:
    """Rows by class and bin of a feature, `bins` of each class."""

    def __init__(self, feature: int, bins: int) -> None:
        self.feature, self.bins = feature, bins

    def answer(self, rows: Any) -> list[int]:
        """Count by OpenDP. It is run where the rows are."""
        cells = rows.target.astype(int) * self.bins + rows.codes[self.feature]
        return [int(count) for count in counts_of(2 * self.bins)(cells.tolist())]


class OpenDPBayes:
    """Log odds of each bin, from counts that are noisy; `prior`: how many rows of each class every bin is given."""

    def __init__(self, prior: float = 4.0) -> None:
        self.prior = float(prior)  # which the command line gives as a text

    def learn(self, session: Any) -> dict[str, Any]:
        """Ask for the counts of each feature, as far as OpenDP says that a row moves them, and return log odds."""
        features = session.public.features
        terms, totals = [], np.zeros(2)
        for at, feature in enumerate(features):
            heard = session.ask(
                "CountsByClass",
                {"feature": at, "bins": feature.bins},
                size=2 * feature.bins,
                sensitivity=int(counts_of(2 * feature.bins).map(1)),
                share=f"{1 / len(features):.4f}",
            )
            rows = np.maximum(heard.reshape(2, -1), 0) + self.prior
            totals += rows.sum(axis=1)
            chances = rows / rows.sum(axis=1, keepdims=True)
            terms.append(np.rint(GRID * np.log(chances[1] / chances[0])).astype(int).tolist())
        constant = round(GRID * float(np.log(totals[1] / totals[0])))
        return {"terms": terms, "constant": constant, "link": 1 / GRID}
