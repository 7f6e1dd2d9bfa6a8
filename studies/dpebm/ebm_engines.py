"""What one convex fit does for `ebm`: held-out figures of its curves in epochs, and at once.

    python -m studies.dpebm.ebm_engines [--data DIR] [--datasets adult ..] [--epsilons 1 4] [--seeds 3]

One line of a table for each dataset and epsilon: AUROC, log loss and processor seconds of either engine, and what the
rule takes. Benchmark rows are public, and nothing that is fitted is released.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks import datasets
from studies.defaults.auto import fit
from training.learners.ebm.ebm import DPEBMClassifier
from training.rows.schema.schema import parse_schema

ENGINES = ("epochs", "convex")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--datasets", nargs="+", default=["adult"])
    parser.add_argument("--epsilons", nargs="+", default=["1", "4"])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    print("| | epsilon | AUROC, epochs / convex | log loss | seconds | the rule |\n|---|---|---|---|---|---|")
    for name in asked.datasets:
        data = datasets.load(name, asked.data)
        for epsilon in asked.epsilons:
            both = [[fit(data, "ebm", epsilon, seed, engine=each) for seed in range(asked.seeds)] for each in ENGINES]
            shown = [
                " / ".join(f"{np.mean([line[figure] for line in lines]):{form}}" for lines in both)
                for figure, form in (("auroc", ".4f"), ("log_loss", ".4f"), ("cpu", ".2f"))
            ]
            schema = parse_schema(datasets.with_records(data.schema_bytes, both[0][0]["records"]))
            model = DPEBMClassifier(schema=schema, epsilon=epsilon)
            print(f"| {name} | {epsilon} | {' | '.join(shown)} | {model.engine_of(model.public_facts())} |", flush=True)


if __name__ == "__main__":
    main()
