"""The study behind class weights where a class is rare: shared datasets with so few rows of the second
class, the share declared, with class weights and without. Tables: studies/defaults/rare.md.

    python -m studies.defaults.rare --data DIR --out rare.jsonl.gz    # fits; goes on where a file ends
    python -m studies.defaults.rare --out rare.jsonl.gz --report      # the tables; fits nothing

Add/remove, delta 1e-6, exact samplers. Held out are other rows; chances are judged as if the share were that of the
training rows.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import yaml
from sklearn.metrics import roc_auc_score

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from studies.defaults.auto import Line, table
from training.learners import LEARNERS
from training.learners.base.class_weights import FEWEST, RARE
from training.rows.schema.schema import parse_schema

MANY = ("adult", "bank", "codrna", "creditcardsmall")
CELLS = (
    *((name, 6000, 0.0046, epsilon) for name in (*MANY, "mushroom", "telco") for epsilon in ("0.2", "1", "4")),
    *((name, 20000, share, epsilon) for share in (0.02, 0.1) for name in MANY for epsilon in ("0.25", "1", "4")),
)
SEEDS = {"lazybb": 4, "lazybb-tree": 4, "ebm": 2}
BALANCES = (0.0, 0.5)
FROM = (0.0, FEWEST, 4 * FEWEST, 1e12)  # rows of the rarer class x epsilon, from which a rule may weigh
BELOW = (0.01, RARE, 0.2)  # shares, below which
Key = tuple[str, int, float, str, int, str]


def fit(
    name: str, folder: str | None, rows: int, share: float, epsilon: str, seed: int, learner: str, balance: float
) -> Line:
    """One fit and what it reached: AUROC, log loss over that of the share alone, and the mean chance over the share."""
    data = datasets.load(name, folder)
    body, labels = yaml.safe_load(data.schema_bytes), np.asarray(data.table[data.target])
    second = np.array([str(label) == str(body["target"]["classes"][1]) for label in labels])
    random = np.random.default_rng(seed)
    rare, common = random.permutation(np.flatnonzero(second)), random.permutation(np.flatnonzero(~second))
    few = max(1, round(rows * share))
    rest = min(rows - few, int(0.75 * len(common)))
    train = random.permutation(np.concatenate([rare[:few], common[:rest]]))
    test = np.concatenate([rare[few : few + 3000], common[rest : rest + 5000]])
    body["records"], body["target"]["prevalence"] = int(few + rest), share
    model = LEARNERS[learner](schema=parse_schema(yaml.safe_dump(body).encode()), epsilon=epsilon, balance=balance)
    features, truth = data.table.drop([data.target]), second[test]
    model.fit(features.take(train), labels[train])
    chance = np.clip(model.predict_proba(features.take(test))[:, 1], 1e-9, 1 - 1e-9)
    weight = np.where(truth, share / truth.sum(), (1 - share) / (~truth).sum())
    alone = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    found = {
        "auroc": roc_auc_score(truth, model.decision_function(features.take(test))),
        "log_loss": (weight * -np.log(np.where(truth, chance, 1 - chance))).sum() / alone,
        "mean": (weight * chance).sum() / share,
    }
    return {"records": int(few + rest), **{key: round(float(value), 5) for key, value in found.items()}}


def play(out: Path, folder: str | None) -> None:
    """Every fit that `out` does not hold yet."""
    done = {(*_key(line), line["balance"]) for line in read_lines(out)}
    for seed in range(max(SEEDS.values())):
        for name, rows, share, epsilon in CELLS:
            for learner in (each for each, seeds in SEEDS.items() if seed < seeds):
                for balance in BALANCES:
                    asked = (name, rows, share, epsilon, seed, learner)
                    if (*asked, balance) not in done:
                        line = dict(zip(KEYS, asked, strict=True)) | {"balance": balance}
                        line |= fit(name, folder, rows, share, epsilon, seed, learner, balance)
                        append_lines(out, line)


KEYS = ("data", "rows", "share", "epsilon", "seed", "learner")


def _key(line: Line) -> Key:
    name, rows, share, epsilon, seed, learner = (line[key] for key in KEYS)
    return name, rows, share, epsilon, seed, learner


def pairs(lines: Iterable[Line]) -> dict[Key, dict[float, Line]]:
    """Fits on the same rows, by balance."""
    held: dict[Key, dict[float, Line]] = defaultdict(dict)
    for line in lines:
        held[_key(line)][line["balance"]] = line
    return {key: by for key, by in held.items() if by.keys() >= set(BALANCES)}


def report(lines: list[Line]) -> str:
    """The tables of studies/defaults/rare.md."""
    found = pairs(lines)
    groups: dict[tuple[str, int, float, str], list[dict[float, Line]]] = defaultdict(list)
    for (_, rows, share, epsilon, _, learner), by in found.items():
        groups[learner, rows, share, epsilon].append(by)
    rows_of_table = []
    for (learner, rows, share, epsilon), held in sorted(groups.items()):
        gain = [by[0.5]["auroc"] - by[0.0]["auroc"] for by in held]
        row = [f"`{learner}`", f"{rows:,} at {share:.2%}", epsilon, f"{rows * share * float(epsilon):,.0f}"]
        row.append(f"{_mean(held, 0.0, 'auroc'):.4f} → {_mean(held, 0.5, 'auroc'):.4f}")
        row.append(f"{mean(gain):+.4f} ± {stdev(gain) / len(gain) ** 0.5:.4f}")
        row += [f"{_mean(held, 0.0, kind):.2f} → {_mean(held, 0.5, kind):.2f}" for kind in ("log_loss", "mean")]
        rows_of_table.append(row)
    head = ["learner", "rows", "epsilon", "rare rows x epsilon", "AUROC", "difference", "log loss", "mean chance"]
    out = [*table(head, rows_of_table), "", "Left out, and the rules that the others would have chosen:", ""]
    names, rest = sorted({key[0] for key in found}), []
    for name in names:
        others = {key: by for key, by in found.items() if key[0] != name}
        own = {key: by for key, by in found.items() if key[0] == name}
        start, below = min(((a, b) for a in FROM for b in BELOW), key=lambda rule: weighed(others, *rule))
        never, ruled = weighed(own, 1e12, RARE), weighed(own, FEWEST, RARE)
        said = f"from {start:,.0f} below {below:.0%}" if start < 1e12 else "never"
        losses = [f"{each:.4f}" for each in (weighed(own, start, below), ruled, never)]
        rest.append([name, said, *losses])
    head = ["left out", "weigh", "log loss so", "by the rule", "never"]
    return "\n".join([*out, *table(head, rest)])


def weighed(found: dict[Key, dict[float, Line]], start: float, below: float) -> float:
    """Mean log loss of both boosters where classes are weighed from so many rows x epsilon on, at shares below."""
    boosted = {key: by for key, by in found.items() if key[5] != "ebm"}
    return mean(by[_balance(key, start, below)]["log_loss"] for key, by in boosted.items())


def _balance(key: Key, start: float, below: float) -> float:
    return 0.5 if key[2] < below and key[1] * key[2] * float(key[3]) >= start else 0.0


def _mean(held: list[dict[float, Line]], balance: float, kind: str) -> float:
    return mean(by[balance][kind] for by in held)


def main() -> None:
    """Fit, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the Parquet files")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines of the fits")
    parser.add_argument("--report", action="store_true", help="print the tables of what the file holds; fits nothing")
    asked = parser.parse_args()
    if not asked.report:
        play(asked.out, asked.data)
    print(report(read_lines(asked.out)))


if __name__ == "__main__":
    main()
