"""One learner in place of a choice, sketched on the product's pieces: the additive part first, then trees on its
margins, in one budget that is split publicly. Prices, samplers and calibration are the product's own; what was reached
is in docs/results/measured.md.

    python -m studies.accuracy.sequence --data DIR --out sequence.jsonl.gz    # fits; goes on where a file ends
    python -m studies.accuracy.sequence --out sequence.jsonl.gz --report      # the table; fits nothing

A curve of released terms is a tree of one feature's codes. So rows weigh by the margin under curves and trees together,
and what is said of released trees (docs/privacy/trees.md) holds of them as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar

import numpy as np

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from dpserve_verify.privacy.budget import Budget, Relation, from_nano, nano
from models.features.features import Feature, NumericFeature
from models.forms.trees import TreeEnsemble
from studies.defaults.auto import Line, fit, load, options, schema_of, table
from training.learners import LEARNERS
from training.learners.boosting.defaults import link_of
from training.learners.boosting.lazybb_tree import LazyBBTree
from training.learners.boosting.noisy_leaves import per_leaf, per_row
from training.learners.boosting.reweighting import Scheduled
from training.learners.boosting.smooth_boosting import unit_of, weight_of_vote
from training.learners.boosting.tree_queries import LeafRules, TreeScores, Weighing, public_cuts, split_tests
from training.learners.choice import choose
from training.learners.ebm.blocks import Layout
from training.learners.ebm.defaults import NO_PAIRS, ebm_defaults, strength
from training.learners.ebm.noise import convex_noise, noise_of
from training.learners.ebm.one_score import OneScore
from training.learners.ebm.queries import BinCounts
from training.learners.ebm.residuals import GRID, SCORES
from training.rows.schema.schema import parse_schema
from training.rows.statistics.tree_rows import Cut, Grown
from training.session.session import Public, Releaser

SETS = ("affairs", "compas", "hmda", "krkp", "lendingclub", "nhefs_death", "remote_work", "ui_benefits")
EPSILONS = ("0.1", "0.5", "1", "4")
FIRST_SEED, COUNTED = 80, 4  # splits from there on; what the counts by class and score cost, in rounds


@dataclass(eq=False, repr=False)
class CurvesThenTrees(LazyBBTree):
    """Curves of one convex fit at `curves` of the budget, then trees, of which the first `rules` are one 1-rule each
    (shares, from 0 to 1).
    """

    name: ClassVar[str] = "sequence"
    curves: float = 0.5
    rules: float = 0.0

    def learn(self, session: Releaser) -> TreeEnsemble:
        """Release curves, then trees by their margins, then the counts by score."""
        settings = self.settings(session.public)
        session = self.cut(session, settings.rounds)
        public, unit = session.public, unit_of(settings)
        trees: tuple[Grown, ...] = ()
        if self.curves:
            trees = curves_first(self, session, settings.rounds, unit / settings.rate)
        bound, votes = sum(max(map(abs, tree.votes)) for tree in trees), 0
        tests, splits = split_tests(public.features), self._splits(public)
        for number in range(settings.rounds):
            slope = settings.slope * votes / max(bound, 1)
            weighing = Weighing(
                Scheduled(settings.rate, slope, settings.weighting, unit, public.most), trees, bound, public
            )
            cuts = public_cuts(tests, number, splits) if number >= self.rules * settings.rounds else ()
            asked, weight = LeafRules(tests, weighing, cuts), weight_of_vote(number, settings)
            picks = session.release(asked, per_row(public, session.unit))
            trees = (*trees, asked.grown(per_leaf(picks, cuts), weight))
            bound, votes = bound + weight, votes + weight
        link = (settings.rate if self.curves else link_of(settings)) / unit
        link, constant, bends = self.bend(session, TreeScores(bound, link, trees), 0.0)
        grown = tuple(tree.tree for tree in trees)
        return TreeEnsemble(public.features, public.target, public.classes or (), grown, constant, link, bends)


def curves_first(learner: CurvesThenTrees, session: Releaser, rounds: int, scale: float) -> tuple[Grown, ...]:
    """Release curves by one convex fit; return them as trees, a logit being `scale`."""
    public, rule = session.public, ebm_defaults(session.public)
    sums = rule.epochs * len(public.features)
    share = learner.curves / (1 - learner.curves) * (rounds + COUNTED) / 4 / sums  # of mu^2: a round's is unit^2 / 4
    unit = from_nano(max(1, int(sqrt(share) * nano(session.unit))))
    noise = noise_of(public, unit, rule)
    where, spans = learner.cutting_of(public), public.spans or (None,) * len(public.features)
    bins = [
        feature.bins - 1 if span is None or where.where == "declared" else where.bins
        for feature, span in zip(public.features, spans, strict=True)
    ]
    layout = Layout.of(public.features, bins, strength(public))
    counted = [BinCounts(at, feature.bins, noise.norm) for at, feature in enumerate(public.features)]
    counts = [session.release(each, noise.counting) / GRID for each in counted]
    model = OneScore(public, rule, noise, counts, NO_PAIRS)
    model.start(session.release(model.whole(), noise.starting))
    loss, minimum = model.loss(layout), convex_noise(unit, sums, layout)
    model.minimise(loss, minimum, session.release(loss, minimum))
    found = model.ensemble()
    return tuple(
        as_tree(
            at, feature, np.rint((np.array(term) + found.constant * (at == 0)) * scale / SCORES).astype(int).tolist()
        )
        for at, (feature, term) in enumerate(zip(public.features, found.terms, strict=True))
    )


def as_tree(place: int, feature: Feature, values: Sequence[int]) -> Grown:
    """Return a feature's term as a tree: a leaf for each run of codes of one value."""
    cuts: list[Cut] = []
    alone = feature.single_codes if not isinstance(feature, NumericFeature) else (feature.bins - 1,)
    others = [code for code in range(feature.bins) if code not in alone]
    votes = [values[others[0] if others else 0]]
    for code in alone:
        cuts.append(Cut(0, "is", place, code))
        votes.append(values[code])
    open_leaves = [(0, 0, feature.bins - 2)] if isinstance(feature, NumericFeature) else []
    while open_leaves:
        leaf, low, high = open_leaves.pop()
        votes[leaf] = values[low]
        if len(set(values[low : high + 1])) > 1:
            middle = (low + high) // 2
            cuts.append(Cut(leaf, "above", place, middle))
            votes.append(0)
            open_leaves += [(leaf, low, middle), (len(votes) - 1, middle + 1, high)]
    return Grown(tuple(cuts), tuple(votes))


METHODS: dict[str, dict[str, Any]] = {
    "half for curves, then trees": {"curves": 0.5},
    "half for curves, then 1-rules": {"curves": 0.5, "depth": 1},
    "1-rules, then as many trees": {"curves": 0.0, "rules": 0.5},
}
PARTS = ("ebm", "lazybb", "lazybb-tree")


def play(out: Path, folder: str | None, seeds: int) -> None:
    """Every fit that `out` does not hold yet."""
    done = {(line["data"], line["method"], line["epsilon"], line["seed"]) for line in read_lines(out)}
    for seed, data, method, epsilon in product(
        range(FIRST_SEED, FIRST_SEED + seeds), SETS, (*METHODS, *PARTS), EPSILONS
    ):
        if (data, method, epsilon, seed) not in done:
            learner = CurvesThenTrees if method in METHODS else LEARNERS[method]
            line = fit(load(data, folder), learner, epsilon, seed, **METHODS.get(method, {}))
            append_lines(out, {"data": data, "method": method, "epsilon": epsilon, "seed": seed, **line})


def taken(line: Line) -> str:
    """Return what `auto` takes where a line was fitted."""
    schema = parse_schema(datasets.with_records(schema_of(line["data"]), line["records"]))
    return choose(Public.of(schema, Relation.ADD_REMOVE, Budget.of(line["epsilon"], "0.000001"), False)).learner


def report(lines: Iterable[Line]) -> str:
    """Return the table: how far each is above what `auto` takes, on the same splits."""
    by: dict[tuple[str, str, int], dict[str, Line]] = defaultdict(dict)
    for line in lines:
        by[line["data"], line["epsilon"], line["seed"]][line["method"]] = line
    rows = []
    for method in (*METHODS, *PARTS):
        gains: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (data, epsilon, _), found in by.items():
            if method in found and (auto := taken(found[method])) in found:
                gains[data, epsilon].append(found[method]["auroc"] - found[auto]["auroc"])
        means = {cell: mean(each) for cell, each in gains.items()}
        row = [method if method in METHODS else f"`{method}`"]
        for epsilon in EPSILONS:
            those = [each for (_, own), each in means.items() if own == epsilon]
            row.append(f"{mean(those):+.4f} ± {stdev(those) / sqrt(len(those)):.4f}")
        ahead, behind = (sum(sign * each > 0 for each in means.values()) for sign in (1, -1))
        rows.append([*row, f"{mean(means.values()):+.4f}", f"{ahead}, {behind}"])
    return "\n".join(table(["", *(f"epsilon {each}" for each in EPSILONS), "all", "cells ahead, behind"], rows))


def main() -> None:
    asked = options(__doc__, 2).parse_args()
    if not asked.report:
        play(asked.out, asked.data, asked.seeds)
    print(report(read_lines(asked.out)))


if __name__ == "__main__":
    main()
