"""BDPE against random forests (RF-L, RF-E), the comparison of Table 4 of Nock and Henecka's "Boosted and differentially
private ensembles of decision trees", with our learners, and its Tables 1 and 3 and Figure 2: studies/bdpe/bdpe.md.

    python -m studies.bdpe.table_4 --data DIR [--sets NAME ...] [--depths D ...] [--trees T ...]
    python -m studies.bdpe.table_4 --data DIR --wider    # all depths, shares .1 and .9, v_q 50, no noise; on few sets
    python -m studies.bdpe.table_4 --report      # the page from the lines that there are; fits nothing

As the paper: epsilon-DP (delta 0) where a record is replaced, ten stratified folds, forests of 21 trees, v_q = 10,
M = 10. Every result is a line of bdpe.jsonl.gz beside the page; what stands there is not run again, unless its digest
is of another learner. All rows are public benchmark rows.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.stats import ttest_rel
from sklearn.model_selection import StratifiedKFold

from benchmarks.datasets import folder_of, load, schema_of, with_records
from benchmarks.lines import append_lines, read_lines, write_lines
from dpserve_verify.privacy.budget import Budget, Relation, from_nano, nano
from studies import digests
from studies.bdpe import table_4_page
from studies.bdpe.table_4_page import PUBLISHED, STRATEGIES
from training.calibration.calibrate import rehearse
from training.learners import LEARNERS, CalibratedBoostingClassifier, DPRandomForestClassifier, forest
from training.learners.base.private_learner import PrivateClassifier
from training.learners.boosting.noisy_leaves import shares
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.data import rows_of
from training.session.session import Public, Session

PAGE = Path(__file__).with_name("bdpe.md")
LEAVES: tuple[Literal["counts"], Literal["label"]] = ("counts", "label")
FOLDS, FOREST, LEVEL = 10, 21, 0.01
EPSILONS = table_4_page.EPSILONS
SHARES, VALUES = (0.1, 0.5, 0.9), (10, 50)
LIMITS = {"creditcardsmall": 1000}  # the paper has the first so many rows
WIDER = ("transfusion", "banknote", "breast_wisconsin", "winered")
NO_NOISE = "none"  # in the place of an epsilon
THRESHOLDS = {  # numbers to be told from a public threshold on: file, schema of the numbers, threshold
    "winered": ("wine_red", "wine_quality", 6),  # marks
    "winewhite": ("wine_white", "wine_quality", 6),
    "abalone": ("abalone", "abalone_rings", 10),  # rings: from the mean on that the publisher names, 9.9
}
Errors = NDArray[np.float64]


@dataclass(frozen=True)
class Folded:
    """A set's public schema, its table and rows, and ten folds: which of the rows are learnt from, and which not."""

    name: str
    schema_bytes: bytes
    schema: Schema
    table: pa.Table
    target: str
    rows: Rows
    folds: tuple[tuple[NDArray[Any], NDArray[Any]], ...]

    @property
    def truth(self) -> NDArray[np.bool_]:
        """Which rows are of the last class."""
        return np.asarray(self.rows.labels == 1)


def folded(name: str, folder: str | None) -> Folded:
    if name in THRESHOLDS:
        raw, table, target = _parted(name, folder)
    else:
        data = load(name, folder)
        raw, table, target = data.schema_bytes, data.table.slice(0, LIMITS.get(name)), data.target
    schema = parse_schema(raw)
    rows = rows_of(schema, table, table[target], Relation.ADD_REMOVE)
    cuts = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows.labels, rows.labels)
    return Folded(name, raw, schema, table, target, rows, tuple(cuts))


def _parted(name: str, folder: str | None) -> tuple[bytes, pa.Table, str]:
    """A set whose target is a number, in two classes: schema, table and target."""
    file, schema, threshold = THRESHOLDS[name]
    place = folder_of(folder)
    if place is None:
        raise FileNotFoundError(f"dataset={name}: not shipped; name its folder (--data or DPSERVE_DATA)")
    table = pq.read_table(place / f"{file}.parquet")
    at = table.column_names.index("target")
    table = table.set_column(at, "target", pc.greater_equal(table["target"], threshold).cast(pa.int64()))
    text = re.sub(r"(?m)^target: .*$", "target: {name: target, classes: [0, 1]}", schema_of(schema).decode())
    return re.sub(r"(?m)^  is_red: .*\n", "", text).encode(), table, "target"


def _part(rows: Rows, index: NDArray[Any]) -> Rows:
    return Rows(np.ascontiguousarray(rows.bins[:, index]), rows.labels[index], rows.widths, 2)


def models(data: Folded, learner: PrivateClassifier, trees: int, epsilon: str) -> Iterator[tuple[Any, Any]]:
    """A fit per fold, and the rows left out. Where delta is 0 the trees' prices add up: each has its share. Without
    noise it is the limit of a large epsilon, and not private.
    """
    exact = epsilon == NO_NOISE
    for fit, left in data.folds:
        schema, budget, rows = data.schema, Budget.of("100" if exact else epsilon, "0"), _part(data.rows, fit)
        public = Public(
            schema.features, schema.target, schema.classes, rows.size, Relation.REPLACE_ONE, budget, pure=True
        )
        unit = from_nano(nano(budget.epsilon) // trees)
        session = (digests.WithoutNoise if exact else Session)(public, unit, rehearse(learner, public, unit), rows)
        ensemble = learner.learn(session)
        session.close()
        yield ensemble, left


def errors(data: Folded, learner: PrivateClassifier, trees: int, epsilon: str) -> Errors:
    """Test errors of ten fits, one per fold."""
    every = models(data, learner, trees, epsilon)
    said = ((each.coded_scores(data.rows.bins[:, left])[:, 0] > 0, left) for each, left in every)
    return np.array([float((answer != data.truth[left]).mean()) for answer, left in said])


def forest_errors(data: Folded, depth: int, epsilon: str) -> dict[str, Errors]:
    """Of each kind of forest: `votes` is that of counts, each tree of which votes for its leaf's majority, as printed;
    `counts` adds up log-odds; `label` votes as well."""
    found: dict[str, list[float]] = defaultdict(list)
    for leaf in LEAVES:
        for ensemble, left in models(data, DPRandomForestClassifier(FOREST, depth, leaf), FOREST, epsilon):
            said = ensemble.coded_scores(data.rows.bins[:, left])[:, 0] > 0
            found[leaf].append(float((said != data.truth[left]).mean()))
    with patch.object(forest, "shares", lambda noisy, one, smoothing, towards=0.5: shares(noisy, one, smoothing)):
        for ensemble, left in models(data, DPRandomForestClassifier(FOREST, depth, "counts"), FOREST, epsilon):
            base, codes = ensemble.constant * forest.GATHER / FOREST, data.rows.bins[:, left]  # a leaf adds to it
            votes = sum(np.sign(walk.weights_of(codes) + base) for walk in ensemble.walks)
            found["votes"].append(float(((votes > 0) != data.truth[left]).mean()))
    return {kind: np.array(each) for kind, each in found.items()}


def own_errors(data: Folded, epsilon: str) -> Errors:
    """Of `lazybb-tree` by its defaults, at the same epsilon, delta and relation."""
    found, features = [], data.table.drop([data.target])
    labels = np.asarray(data.table[data.target])
    for fit, left in data.folds:
        schema = parse_schema(with_records(data.schema_bytes, fit.size))
        model: Any = LEARNERS["lazybb-tree"](schema=schema, epsilon=epsilon, delta="0", relation="replace-one")
        model.fit(features.take(fit), labels[fit])
        found.append(float((model.predict(features.take(left)) != labels[left]).mean()))
    return np.array(found)


def verdict(ours: Errors, theirs: Errors) -> int:
    """1: ours is significantly better (paired Student's t), -1: worse, 0: neither."""
    gap = theirs - ours
    if not gap.any() or not gap.std():
        return int(np.sign(gap.mean()))
    return int(np.sign(gap.mean())) if ttest_rel(ours, theirs).pvalue < LEVEL else 0


Line = dict[str, Any]


@cache
def today(kind: str, strategy: str | None) -> str:
    """Digest of a line of this kind: of `lazybb-tree`, or of `bdpe` with the forests that it is compared with."""
    found, pure = [], {"delta": "0", "relation": "replace-one"}
    for epsilon in digests.BUDGETS:
        if strategy is None:
            found.append(digests.digest(LEARNERS["lazybb-tree"](epsilon=epsilon, **pure)))
            continue
        alpha, calibration = STRATEGIES[strategy]
        found.append(digests.digest(CalibratedBoostingClassifier(5, 3, alpha, calibration, epsilon=epsilon, **pure)))
        if kind == "bdpe":
            forests = [DPRandomForestClassifier(FOREST, 3, leaf, epsilon=epsilon, **pure) for leaf in LEAVES]
            found += map(digests.digest, forests)
    return digests.join(found)


def digest_of(line: Mapping[str, Any]) -> str | None:
    """What the digest of this line is by today's learners; None of a line that no learner of ours made."""
    return None if line["kind"] == "majority" else today(line["kind"], line.get("strategy"))


def cell_of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(key) for key in ("set", "kind", "epsilon", "depth", "trees", "share", "values"))


class Work:
    """Runs what the lines do not have yet of a set, and adds it to them."""

    def __init__(self, data: Folded, file: Path) -> None:
        self.data, self.file = data, file
        self.done = {cell_of(line) for line in read_lines(file) if digest_of(line) in (None, line.get("digest"))}

    def lacks(self, kind: str, epsilon: str | None = None, *of: float) -> bool:
        cell = (self.data.name, kind, epsilon, *of)
        return (*cell, *[None] * (7 - len(cell))) not in self.done

    def add(self, *lines: Line) -> None:
        for line in lines:
            digest = digest_of(line)
            append_lines(self.file, {"set": self.data.name} | line | ({"digest": digest} if digest else {}))
        print(*cell_of({"set": self.data.name} | lines[-1]), flush=True)

    def table_4(self, depths: list[int], trees: list[int]) -> None:
        """Verdicts against forests, and errors of the majority and of `lazybb-tree` beside."""
        if self.lacks("majority"):
            share = float(self.data.truth.mean())
            self.add({"kind": "majority", "error": round(min(share, 1 - share), 5)})
        for epsilon in EPSILONS:
            if self.lacks("lazybb-tree", epsilon):
                own = float(own_errors(self.data, epsilon).mean())
                self.add({"epsilon": epsilon, "kind": "lazybb-tree", "error": round(own, 5)})
            for depth in depths:
                missing = [each for each in trees if self.lacks("bdpe", epsilon, depth, each, 0.5, 10)]
                forests = forest_errors(self.data, depth, epsilon) if missing else {}
                for each in missing:
                    self.add(*compared(self.data, forests, epsilon, depth, each))

    def wider(self) -> None:
        """Errors alone: at all depths, without noise, with other shares of the budget, and with more cut points."""
        three, few = EPSILONS[1:4], (2, 20)
        cells = [
            *product((NO_NOISE,), range(1, 7), few, SHARES[1:2], VALUES[:1]),
            *product(three, range(1, 7), few, SHARES[1:2], VALUES[:1]),
            *product(three, (4,), few, (SHARES[0], SHARES[2]), VALUES[:1]),
            *product(three, (4,), few, SHARES[1:2], VALUES[1:]),
        ]
        for cell in cells:
            if self.lacks("bdpe", *cell) and self.lacks("alone", *cell):
                self.add(*alone(self.data, *cell))


def alone(data: Folded, epsilon: str, depth: int, trees: int, share: float, values: int) -> Iterator[Line]:
    """A line per strategy: errors of BDPE."""
    for strategy in STRATEGIES:
        ours = errors(data, learner_of(strategy, depth, trees, share, values), trees, epsilon)
        line: Line = {"epsilon": epsilon, "depth": depth, "trees": trees, "share": share, "values": values}
        yield line | {"kind": "alone", "strategy": strategy, "error": round(float(ours.mean()), 5)}


def learner_of(strategy: str, depth: int, trees: int, share: float, values: int) -> CalibratedBoostingClassifier:
    return CalibratedBoostingClassifier(trees, depth, *STRATEGIES[strategy], share, values=values)


def compared(data: Folded, forests: dict[str, Errors], epsilon: str, depth: int, trees: int) -> Iterator[Line]:
    """A line per strategy: verdicts against each forest, and errors."""
    for strategy in STRATEGIES:
        ours = errors(data, learner_of(strategy, depth, trees, 0.5, 10), trees, epsilon)
        line: Line = {"epsilon": epsilon, "depth": depth, "trees": trees, "share": 0.5, "values": 10}
        line |= {"kind": "bdpe", "strategy": strategy, "error": round(float(ours.mean()), 5)}
        line |= {"forests": {kind: round(float(each.mean()), 5) for kind, each in forests.items()}}
        yield line | {"verdicts": {kind: verdict(ours, each) for kind, each in forests.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the Parquet files")
    parser.add_argument("--sets", nargs="+", choices=PUBLISHED)
    parser.add_argument("--trees", nargs="+", type=int, default=[2, 5, 10, 20])
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 4, 6])
    parser.add_argument("--wider", action="store_true", help="what the paper varies besides, on WIDER or --sets")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--report", action="store_true", help="write the page alone")
    asked = parser.parse_args()
    file = asked.out.with_suffix(".jsonl.gz")
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for name in () if asked.report else asked.sets or (WIDER if asked.wider else PUBLISHED):
        work = Work(folded(name, asked.data), file)
        if asked.wider:
            work.wider()
        else:
            work.table_4(asked.depths, asked.trees)
    lines = read_lines(file)
    write_lines(file, {(*cell_of(line), line.get("strategy")): line for line in lines}.values())  # the last of each
    asked.out.write_text(table_4_page.page(read_lines(file)), encoding="utf-8")


if __name__ == "__main__":
    main()
