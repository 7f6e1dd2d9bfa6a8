"""Others on the rows that `benchmarks/scale.py` packed: what a round takes of LightGBM, of XGBoost from external
memory, and of interpret's DP-EBM. In the benchmarks' environment (`make bench-utility` makes it).

All are given the codes of the packed rows as numbers, so that they find the same 32 bins, and one thread. LightGBM and
XGBoost keep nothing private: they answer what rounds cost without it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS, BATCH, ROUNDS = 33, 500_000, 20
Stamps = list[float]


def packed(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The codes (features, rows) and classes (rows,) of the dataset below `folder`, mapped."""
    [place] = (folder / "home" / "datasets").glob("*/bins.npy")
    return np.load(place, mmap_mode="r"), np.load(place.with_name("labels.npy"), mmap_mode="r")


def lightgbm(parameters: dict[str, Any]) -> Callable[[Path], Stamps]:
    """Read by batches into its own bins; then trees of these parameters."""

    def fit(folder: Path) -> Stamps:
        import lightgbm as found  # type: ignore[import-not-found]

        codes, labels = packed(folder)

        class Batches(found.Sequence):  # type: ignore[misc]
            batch_size = BATCH

            def __getitem__(self, which: Any) -> NDArray[np.float64]:
                return np.ascontiguousarray(codes[:, which].T, np.float64)

            def __len__(self) -> int:
                return codes.shape[1]

        stamps: Stamps = []
        own = {"objective": "binary", "num_threads": 1, "verbose": -1, **parameters}
        rows = found.Dataset(Batches(), np.asarray(labels), params={"max_bin": BINS, "num_threads": 1, "verbose": -1})
        found.train(own, rows, ROUNDS, callbacks=[lambda _: stamps.append(time.process_time())])
        return stamps

    return fit


def xgboost(parameters: dict[str, Any]) -> Callable[[Path], Stamps]:
    """From external memory: quantized batches in files, read again for every level of every tree."""

    def fit(folder: Path) -> Stamps:
        import xgboost as found  # type: ignore[import-not-found]

        codes, labels = packed(folder)
        stamps: Stamps = []

        class Batches(found.DataIter):  # type: ignore[misc]
            def __init__(self, cache: str) -> None:
                self.at = 0
                super().__init__(cache_prefix=cache)

            def next(self, input_data: Callable[..., None]) -> bool:
                if self.at >= codes.shape[1]:
                    return False
                some = slice(self.at, self.at + BATCH)
                input_data(data=np.ascontiguousarray(codes[:, some].T, np.float32), label=np.asarray(labels[some]))
                self.at += BATCH
                return True

            def reset(self) -> None:
                self.at = 0

        class Stamp(found.callback.TrainingCallback):  # type: ignore[misc]
            def after_iteration(self, *_: Any) -> bool:
                stamps.append(time.process_time())
                return False

        with tempfile.TemporaryDirectory(dir=folder) as cache:
            rows = found.ExtMemQuantileDMatrix(Batches(f"{cache}/rows"), max_bin=BINS, nthread=1)
            own = {"objective": "binary:logistic", "tree_method": "hist", "max_bin": BINS, "nthread": 1}
            found.train({**own, **parameters}, rows, ROUNDS, callbacks=[Stamp()])
            del rows  # which removes its files
        return stamps

    return fit


def dp_ebm(folder: Path) -> Stamps:
    """Private, as shipped but for its rounds; one stamp for each number of them, all terms once being a round."""
    from interpret.privacy import DPExplainableBoostingClassifier  # type: ignore[import-not-found]

    codes, labels = packed(folder)
    cells, classes = np.ascontiguousarray(codes.T, np.float64), np.asarray(labels)
    bounds = dict.fromkeys(range(len(codes)), (0.0, 31.0))
    stamps: Stamps = []
    for rounds in (1, ROUNDS):
        before = time.process_time()
        asked = {
            "max_rounds": rounds,
            "max_bins": 32,
            "privacy_bounds": bounds,
            "epsilon": 2,
            "delta": 1e-6,
            "n_jobs": 1,
        }
        DPExplainableBoostingClassifier(feature_types=["continuous"] * len(codes), **asked).fit(cells, classes)
        stamps.append(time.process_time() - before)
    first, last = stamps
    a_term = (last - first) / ((ROUNDS - 1) * len(codes))
    return [0.0, a_term]


PEERS: dict[str, tuple[Callable[[Path], Stamps], int]] = {  # and the most rows that 8 GB of memory are enough for
    "LightGBM, a stump": (lightgbm({"num_leaves": 2}), 10**8),
    "LightGBM, a tree of 31 leaves": (lightgbm({}), 10**8),
    "XGBoost from disk, a stump": (xgboost({"max_depth": 1}), 10**8),
    "XGBoost from disk, a tree of depth 6": (xgboost({}), 10**8),
    "interpret's DP-EBM, a term": (dp_ebm, 10**7),
}
