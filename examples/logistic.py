"""A whole program that reads rows: the logistic regression of diffprivlib (IBM), vouched for by epsilon.

Its noise and its proof are the library's: objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011). What a
voucher has to read: rows are one-hot codes of length 1 and the intercept is a code's, as the proof wants; the noise is
that of a replaced row, so a row that is added or removed has more than it needs; the optimum is taken for exact.

    dpserve learner admit examples/logistic.py:Logistic --name logistic --vouched epsilon --dataset adult \\
        --module diffprivlib.models --reason "two of us read the proof and this file"
"""

from typing import Any

import numpy as np

GRID = 1 << 16  # parts of a logit


class Logistic:
    """`strength`: of the ridge, over the number of codes; the noise grows with that number as well."""

    def __init__(self, strength: float = 0.25) -> None:
        self.strength = float(strength)

    def learn(self, session: Any) -> dict[str, Any]:
        """Fit it to the rows, and return each code's coefficient."""
        from diffprivlib.models import LogisticRegression

        rows, widths = session.rows, [feature.bins for feature in session.public.features]
        ends = np.cumsum([0, *widths])
        ones = np.zeros((rows.target.size, ends[-1]))
        for codes, first in zip(rows.codes, ends[:-1], strict=True):
            ones[np.arange(codes.size), first + codes] = len(widths) ** -0.5
        epsilon = float(session.public.price["epsilon"])
        model = LogisticRegression(
            epsilon=epsilon,
            data_norm=1.0,
            C=epsilon / (self.strength * ends[-1]),
            fit_intercept=False,
            max_iter=1000,
        )
        model.fit(ones, rows.target)
        odds = model.coef_[0] * len(widths) ** -0.5
        terms = np.split(np.rint(GRID * odds).astype(int), ends[1:-1])
        return {"terms": [term.tolist() for term in terms], "constant": 0, "link": 1 / GRID}
