"""From where noisy counts shall find where numbers are cut (FOUND_FROM, training/learners/base/cut_points.py): the
learner that `auto` takes, with declared cut points and with found ones, on the schemas' ranges and on ranges ten
times too wide, at strengths over the root of the numbers from 250 on. And, at given epsilons, what found cut points
reach by the rule. studies/defaults/cuts.md has the tables.

    python -m studies.defaults.cuts --data DIR --out FILE --seeds 3                # fits; goes on where a file ends
    python -m studies.defaults.cuts --out FILE --report                            # the table; fits nothing
    python -m studies.defaults.cuts --data DIR --out FILE --epsilons 1 4 --sets adult --names ebm lazybb-tree
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import mean
from typing import Any

import yaml

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from dpserve_verify.privacy.budget import Budget, Relation
from studies.defaults.auto import fit, options, table
from training.learners.base.cut_points import counted_numbers
from training.learners.choice import choose
from training.rows.schema.schema import parse_schema
from training.session.session import Public

SETS = ("adult", "bank", "creditcardsmall", "codrna", "eeg", "page_blocks", "cardiotocography")
STRENGTHS = (250, 350, 500, 700, 1000)
WIDER = {"right": 1, "wide": 10, "thousandfold": 1000, "millionfold": 1_000_000}  # how many times as wide ranges are
Line = dict[str, Any]


def widen(schema: bytes, times: int) -> bytes:
    """Return the schema with every range so many times as wide: upwards where it begins at 0 or above, else to both
    sides, as wide guesses of amounts and of differences are.
    """
    read = yaml.safe_load(schema)
    for name, feature in read["features"].items():
        if "range" in feature:
            low, high = feature["range"]
            room = (times - 1) * (high - low)
            ends = [low, high + room] if low >= 0 else [low - room / 2, high + room / 2]
            read["features"][name] = dict(feature, range=ends)
    written: bytes = yaml.safe_dump(read, sort_keys=False).encode()
    return written


def public_of(schema: bytes, records: int, epsilon: str) -> Public:
    """Return what is public of such a fit."""
    parsed = parse_schema(datasets.with_records(schema, records))
    return Public.of(parsed, Relation.ADD_REMOVE, Budget.of(epsilon, "0.000001"), False)


def epsilon_at(schema: bytes, records: int, strength: float) -> str:
    """Return the epsilon at which a set has this strength over the root of its numbers."""
    numbers = counted_numbers(public_of(schema, records, "1"))
    return f"{strength * numbers**0.5 / records:.3g}"


def cells(choices: argparse.Namespace, data: datasets.Dataset) -> Iterator[tuple[Line, bytes]]:
    """List what is to be fitted of a set: its line so far, and its schema."""
    records = int(0.8 * data.table.num_rows)
    at = [(epsilon, 0.0) for epsilon in choices.epsilons or ()] or [
        (epsilon_at(data.schema_bytes, records, strength), strength) for strength in choices.strengths
    ]
    for seed in range(choices.first_seed, choices.first_seed + choices.seeds):
        for epsilon, strength in at:
            for ranges in choices.ranges:
                schema = widen(data.schema_bytes, WIDER[ranges])
                names = choices.names or (choose(public_of(schema, records, epsilon)).learner,)
                for name in names:
                    for cuts in choices.cuts:
                        about = {"data": data.name, "ranges": ranges, "strength": strength, "epsilon": epsilon}
                        yield about | {"learner": name, "cuts": cuts, "seed": seed, "code": choices.code}, schema


def play(choices: argparse.Namespace) -> None:
    done = [{k: line[k] for k in line if k not in FIGURES} for line in read_lines(choices.out)]
    for name in choices.sets:
        data = datasets.load(name, choices.data)
        for line, schema in cells(choices, data):
            if line in done:
                continue
            reached = fit(replace(data, schema_bytes=schema), line["learner"], line["epsilon"], line["seed"],
                          cuts=line["cuts"])  # fmt: skip
            append_lines(choices.out, line | {key: reached[key] for key in FIGURES})


FIGURES = ("auroc", "log_loss", "cpu")


def report(lines: list[Line]) -> str:
    """Of each set and strength: the mean AUROC of each kind of ranges and cut points, and of each code measured."""
    by: dict[tuple[str, Any, str], dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        where = line["strength"] or f"epsilon {line['epsilon']}"
        kind = line["ranges"], line["cuts"], line["code"]
        by[line["data"], where, line["learner"]][kind].append(line["auroc"])
    kinds = sorted({kind for reached in by.values() for kind in reached})
    rows = []
    for key, reached in sorted(by.items(), key=lambda item: (str(item[0][0]), str(item[0][1]).zfill(9))):
        held = [f"{mean(reached[kind]):.4f}" if reached[kind] else "-" for kind in kinds]
        rows.append([str(part) for part in key] + held)
    return "\n".join(table(["dataset", "strength", "learner", *(", ".join(kind) for kind in kinds)], rows))


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--strengths", nargs="*", type=int, default=STRENGTHS)
    parser.add_argument("--epsilons", nargs="*", help="in place of strengths")
    parser.add_argument("--names", nargs="*", help="learners, in place of the one that `auto` takes")
    parser.add_argument("--cuts", nargs="*", default=("declared", "found"))
    parser.add_argument("--ranges", nargs="*", default=("right", "wide"))
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--code", default="", help="which code was measured: stands in every line")
    choices = parser.parse_args()
    print(report(read_lines(choices.out))) if choices.report else play(choices)


if __name__ == "__main__":
    main()
