"""What others report of DP-EBM, by dataset and epsilon: the paper's Tables 2 and 3 (DPEBM-GDP and DPEBM-Classic, of 25
splits), and interpret-core 0.7.8 measured in our protocol (5 random 80/20 splits, delta 1e-6, add/remove). For classes
the best setting of interpret that an open search on the same datasets found; for numbers its defaults.
"""

from __future__ import annotations

EPSILONS = ("0.05", "0.1", "0.25", "0.5", "1", "2", "4", "8")


def _by(*figures: float) -> dict[str, float]:
    return dict(zip(EPSILONS[-len(figures) :], figures, strict=True))


# The paper's elevators has another scale of the target than the copy used here (0.006 to 0.004): not comparable.
PAPER = {
    "adult": _by(0.875, 0.883, 0.887, 0.889, 0.890),
    "telco": _by(0.829, 0.835, 0.838, 0.839, 0.839),
    "california": _by(79967, 76827, 74573, 73754, 73165),
    "pol": _by(30.988, 28.391, 26.303, 24.934, 24.313),
    "wine_quality": _by(0.938, 0.841, 0.779, 0.746, 0.733),
    "fraud": _by(0.966, 0.966, 0.969, 0.969, 0.969),
}
CLASSIC = {  # the same noise, by the composition of Kairouz, Oh and Viswanath
    "adult": _by(0.873, 0.880, 0.886, 0.889, 0.890),
    "telco": _by(0.812, 0.832, 0.837, 0.838, 0.839),
    "california": _by(85652, 78527, 75491, 73967, 73327),
    "pol": _by(35.156, 30.911, 27.616, 25.454, 24.625),
    "wine_quality": _by(1.589, 1.181, 0.935, 0.807, 0.751),
    "fraud": _by(0.959, 0.965, 0.969, 0.969, 0.969),
}
INTERPRET = {
    "adult": _by(0.8523, 0.8800, 0.8897, 0.9009, 0.9036, 0.9060, 0.9066, 0.9067),
    "telco": _by(0.7320, 0.7420, 0.8204, 0.8322, 0.8350, 0.8425, 0.8457, 0.8469),
    "california": _by(114300, 101400, 84270, 79010, 76390, 73820, 73110, 73100),
    "wine_quality": _by(1.836, 1.461, 1.094, 0.8996, 0.82, 0.7648, 0.7369, 0.7283),
    "elevators": _by(0.3974, 0.3137, 0.2527, 0.2116, 0.1871, 0.1754, 0.1668, 0.1638),
    "pol": _by(44.64, 38.31, 33.94, 30.24, 27.25, 25.01, 24.25, 24.14),
}
MEAN = {"california": 114800.0, "wine_quality": 0.8659, "elevators": 0.254, "pol": 41.65}
