"""What the local paper (Wang and Chang, "Privacy-preserving boosting in the local setting") prints: Tables II to IV,
and what its text says of Figures 4 and 7, which are pictures. Means; the paper's synthetic seed is not known.
"""

from __future__ import annotations

EPSILONS = (1, 3, 5, 7, 9)
Cells = dict[str, dict[str, tuple[float, ...]]]  # set, mechanism: a mean for each of EPSILONS

TABLE_2: Cells = {  # distance of a centroid from the true one
    "mnist": {
        "Laplace": (88.950, 28.310, 17.623, 12.504, 9.866),
        "Duchi": (33.625, 9.501, 4.899, 3.136, 2.247),
        "PM": (14.088, 4.518, 2.965, 2.449, 2.111),
    },
    "fashion": {
        "Laplace": (256.974, 82.804, 50.814, 35.740, 27.713),
        "Duchi": (51.749, 15.223, 8.096, 5.166, 3.995),
        "PM": (24.850, 8.575, 5.451, 4.383, 3.910),
    },
    "synthetic": {
        "Laplace": (15.681, 5.314, 3.230, 2.464, 1.904),
        "Duchi": (3.905, 1.307, 0.927, 0.650, 0.594),
        "PM": (3.266, 0.970, 0.553, 0.372, 0.268),
    },
}
TABLE_3: Cells = {  # of a feature's impurity from the true one
    "mnist": {
        "Laplace": (1290.09, 141.96, 47.95, 26.18, 14.58),
        "Duchi": (12.24, 3.03, 2.56, 2.34, 2.40),
        "PM": (5.32, 0.27, 0.22, 0.20, 0.18),
    },
    "fashion": {
        "Laplace": (5613.86, 559.66, 200.22, 103.88, 60.32),
        "Duchi": (25.13, 6.03, 5.24, 4.99, 5.25),
        "PM": (10.71, 0.63, 0.48, 0.22, 0.19),
    },
    "synthetic": {
        "Laplace": (36.76, 3.53, 1.06, 0.53, 0.21),
        "Duchi": (0.81, 0.23, 0.18, 0.15, 0.13),
        "PM": (0.807, 0.029, 0.037, 0.013, 0.013),
    },
}
TABLE_4: Cells = {  # of a parameter from the true one; the paper has Brazil's census in place of the synthetic set
    "mnist": {
        "Laplace": (518.3575, 58.0616, 21.6944, 11.7771, 7.0411),
        "Duchi": (11.8556, 2.9711, 2.8311, 2.8072, 2.7251),
        "PM": (5.2721, 0.4872, 0.3388, 0.1703, 0.1483),
    },
    "fashion": {
        "Laplace": (270.5490, 30.7099, 10.9630, 5.9292, 3.6319),
        "Duchi": (7.2207, 1.9912, 1.5668, 1.5195, 1.4536),
        "PM": (3.1646, 0.3595, 0.2461, 0.1183, 0.1091),
    },
}
APART = {"mnist": (1.01, 0.20, 0.43), "fashion": (1.12, 0.17, 0.71), "synthetic": (0.5, 0.3, None)}

# (set, learner): {epsilon: error after ten rounds in percent}; 0: without noise.
TEN_ROUNDS = {
    ("mnist", "ncc"): {0: 4, 5: 17, 7: 9},
    ("fashion", "ncc"): {0: 5, 7: 19, 9: 20},
    ("synthetic", "ncc"): {0: 9, 5: 14, 7: 12},
    ("mnist", "stump"): {0: 7, 5: 13, 7: 9},
    ("fashion", "stump"): {7: 18, 9: 19},
    ("synthetic", "stump"): {5: 19},
}
