"""DP-EBM against its paper (Nori, Caruana, Bu, Shen and Kulkarni, 2021) and against the paper's own software: the
learner `ebm` by its default rule alone, on random 80/20 splits, delta 1e-6, add/remove.

    python -m studies.dpebm.ebm_paper --data DIR            # all of it: minutes
    python -m studies.dpebm.ebm_paper --data DIR --quick    # one split, three epsilons

Every fit is a line of `dpebm.jsonl` of the folder `--out`; what stands there is not run again, unless its digest is of
another learner. dpebm.md is written from
that file alone.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines, write_lines
from benchmarks.peers import Task
from benchmarks.utility import DELTA, EPSILONS, Run, task_of
from studies import digests
from studies.dpebm.ebm_published import CLASSIC, INTERPRET, MEAN, PAPER
from training.learners.ebm.ebm import DPEBMClassifier, DPEBMRegressor

SETS = ("adult", "telco", "fraud", "california", "wine_quality", "elevators", "pol")
HERE = Path(__file__).parent
LINES = "dpebm.jsonl"
Line = dict[str, Any]


def classes(name: str) -> bool:
    return name in (*datasets.names(), "fraud")


def load(name: str, folder: str | None) -> datasets.Dataset:
    """A set of the benchmarks, or the paper's payments, whose schema is beside this file."""
    if name != "fraud":
        return datasets.load(name, folder)
    place = datasets.folder_of(folder)
    if place is None:
        raise FileNotFoundError("dataset=fraud: not shipped; name its folder (--data or DPSERVE_DATA)")
    return datasets.Dataset(name, pq.read_table(place / "fraud.parquet"), "target", (HERE / "fraud.yaml").read_bytes())


def rule_of(name: str) -> str:
    """What a table's figures are, and which way is better."""
    return "AUROC, higher is better" if classes(name) else "root mean squared error, lower is better"


def fitted(task: Task) -> tuple[float, float]:
    """AUROC or root mean squared error on the held-out rows, and the seconds of the fit."""
    from sklearn.metrics import roc_auc_score

    kind = DPEBMRegressor if task.schema.classes is None else DPEBMClassifier
    model = kind(schema=task.schema_bytes, epsilon=task.epsilon, delta=task.delta, relation="add-remove")
    target, began = task.schema.target, time.perf_counter()
    model.fit(task.train.drop_columns([target]), task.train[target])
    took, held = time.perf_counter() - began, task.test.drop_columns([target])
    truth = task.test[target].to_numpy()
    if task.schema.classes is None:
        return float(np.sqrt(np.mean((model.predict(held) - truth) ** 2))), took
    positive = np.array([str(label) == str(task.schema.classes[-1]) for label in truth])
    return float(roc_auc_score(positive, model.decision_function(held))), took


def perform(folder: str | None, sets: Sequence[str], epsilons: Sequence[str], seeds: int, path: Path) -> None:
    """Run what `path` does not have yet, and add it there line by line."""
    lines = lines_of(path)
    done = {(line["dataset"], line["epsilon"], line["seed"]) for line in lines if not digests.stale([line], today)}
    for name in sets:
        dataset = load(name, folder)
        for seed in range(seeds):
            for epsilon in epsilons:
                if (name, epsilon, seed) in done:
                    continue
                task = task_of(dataset, Run(name, "ebm", epsilon, DELTA, seed))
                score, seconds = fitted(task)
                line = {"dataset": name, "epsilon": epsilon, "delta": DELTA, "seed": seed, "rows": task.train.num_rows}
                line |= {"features": len(task.schema.features), "score": float(f"{score:.6g}")}
                append_lines(path, line | {"seconds": round(seconds, 3), "digest": today(line)})


@cache
def digest_of(target: str) -> str:
    """Digest of the learner by its default rule, for classes or for a number."""
    kind = DPEBMClassifier if target == "classes" else DPEBMRegressor
    return digests.join(digests.digest(kind(epsilon=epsilon), target) for epsilon in digests.BUDGETS)


def today(line: Mapping[str, Any]) -> str:
    return digest_of("classes" if classes(line["dataset"]) else "number")


def lines_of(path: Path) -> list[Line]:
    """The last line of each fit."""
    return list({(line["dataset"], line["epsilon"], line["seed"]): line for line in read_lines(path)}.values())


def number(value: float | None, name: str) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 2 else f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def better(name: str, ours: float, theirs: float) -> bool:
    return ours >= theirs if classes(name) else ours <= theirs


def found(lines: Sequence[Line], name: str) -> dict[str, tuple[float, float, int]]:
    """epsilon -> mean, standard error and number of splits."""
    out = {}
    for epsilon in EPSILONS:
        scores = [line["score"] for line in lines if line["dataset"] == name and line["epsilon"] == epsilon]
        if scores:
            error = float(np.std(scores, ddof=1)) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan
            out[epsilon] = float(np.mean(scores)), error, len(scores)
    return out


def table(name: str, ours: dict[str, tuple[float, float, int]]) -> list[str]:
    """One dataset's table: ours, the paper's software, the paper, and the mean."""
    shown = list(ours)
    splits = min(many for _, _, many in ours.values())
    out = [
        "",
        f"## {name}: {rule_of(name)} ({splits} splits)",
        "",
        f"| | {' | '.join(shown)} |",
        "|---|" + "---|" * len(shown),
    ]
    cells = [f"**{number(ours[e][0], name)}**{_error(ours[e][1], name)}" for e in shown]
    out.append(f"| ebm, default rule | {' | '.join(cells)} |")
    others = {"interpret 0.7.8": INTERPRET, "the paper, DPEBM-GDP": PAPER, "the paper, DPEBM-Classic": CLASSIC}
    for title, figures in ((title, by.get(name, {})) for title, by in others.items()):
        if figures:
            out.append(f"| {title} | {' | '.join(number(figures.get(e), name) for e in shown)} |")
    if name in MEAN:
        out.append(f"| the mean of the targets, not private | {' | '.join([number(MEAN[name], name)] * len(shown))} |")
    return out


def _error(error: float, name: str) -> str:
    return "" if math.isnan(error) else f"<br>±{number(error, name)}"


def missed(name: str, ours: dict[str, tuple[float, float, int]]) -> list[str]:
    """Sentences about where a published figure, or the mean, is better than ours."""
    out = []
    for title, figures in (
        ("interpret", INTERPRET.get(name, {})),
        ("the paper", PAPER.get(name, {})),
        ("the mean", dict.fromkeys(EPSILONS, MEAN[name]) if name in MEAN else {}),
    ):
        for epsilon, (mean, error, _) in ours.items():
            theirs = figures.get(epsilon)
            if theirs is not None and not better(name, mean, theirs):
                gap = number(abs(mean - theirs), name)
                out.append(f"- {name}, epsilon {epsilon}: {title} by {gap}{_within(error, name)}")
    return out


def _within(error: float, name: str) -> str:
    return "" if math.isnan(error) else f" (our standard error is {number(error, name)})"


def page(lines: Sequence[Line]) -> str:
    tables, misses = [], []
    for name in SETS:
        ours = found(lines, name)
        if ours:
            tables += table(name, ours)
            misses += missed(name, ours)
    seconds = [line["seconds"] for line in lines if line["dataset"] == "adult"]
    speed = f"A fit of Adult took {np.median(seconds):.2f} s (median of {len(seconds)})." if seconds else ""
    text = (HERE / "ebm_page.md").read_text(encoding="utf-8").rstrip()
    head = text.replace(" {older}", digests.older("dpebm/dpebm.md"))
    said = misses or ["Nowhere: every figure is at least as good."]
    return "\n".join([head, "", speed, "", "## Where another figure is better", "", *said, *tables, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the Parquet files (or DPSERVE_DATA)")
    parser.add_argument("--quick", action="store_true", help="one split and epsilons .1, 1 and 8")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    epsilons, seeds = (("0.1", "1", "8"), 1) if asked.quick else (EPSILONS, asked.seeds)
    perform(asked.data, asked.sets, epsilons, seeds, asked.out / LINES)
    write_lines(asked.out / LINES, lines_of(asked.out / LINES))
    (asked.out / "dpebm.md").write_text(page(lines_of(asked.out / LINES)), encoding="utf-8")


if __name__ == "__main__":
    main()
