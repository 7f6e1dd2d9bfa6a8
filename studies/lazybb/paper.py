"""The LazyBB paper's own results again, with our learner, beside what the paper prints: studies/lazybb/paper.md.

    python -m studies.lazybb.paper [--data DIR] [--only PART ...] [--variants V ...] [--repeats 4] [--fresh] [--report]

Cod-RNA and Mushroom come from DIR (or DPSERVE_DATA), Adult from examples/data. Every finished cell is a JSON line in
paper.jsonl.gz beside it, and is not run again unless its digest is of another learner, or --fresh or more repeats ask
for it; --report only writes the page and its pictures from what is there. All of it on public benchmark rows, and
nothing that it fits is released.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.datasets import folder_of
from benchmarks.lines import append_lines, read_lines, write_lines
from studies.digests import stale
from studies.lazybb import paper_fits as fits
from studies.lazybb import paper_other as other
from studies.lazybb import paper_peers as peers
from studies.lazybb.paper_fits import Cell
from studies.lazybb.paper_published import BEST, EPSILONS, FIGURE_2, FIGURE_2_MEASURED, SETTINGS, Setting
from studies.lazybb.paper_report import TREE_EPSILONS, TREE_SETS, TREE_SETTINGS, write
from studies.lazybb.paper_sets import NAMES

RESULTS = Path(__file__).parent
PARTS = ("curves", "repository", "figure 1", "figure 2", "figure 3", "table 4", "baselines", "trees", "peers")
DELTA = "0.00001"
Record = dict[str, Any]


def curves() -> Iterator[Cell]:
    """Table 2 at the settings of Tables 8 to 10, and the sparsity of Tables 3 and 5 to 7."""
    for name in NAMES:
        for epsilon in EPSILONS:
            for variant in fits.VARIANTS:
                ours_alone = variant in (fits.CUTS, fits.DEFAULTS, fits.SCHEDULED)
                if not ((ours_alone and "observed" in name) or (variant == fits.CODED and name == "adult")):
                    at = None if variant == fits.DEFAULTS else SETTINGS[name.partition(",")[0]][epsilon]
                    yield Cell("curves", name, variant, epsilon, "0", at)


def repository() -> Iterator[Cell]:
    for line in BEST:
        name = line.set if line.set == "adult" else f"{line.set}, observed range"
        for variant in (fits.THEOREM, fits.CODED, fits.OURS):
            yield Cell("repository", name, variant, line.epsilon, "0", line.setting, "folds")


def figure_2() -> Iterator[Cell]:
    for epsilon in dict.fromkeys(line.epsilon for line in FIGURE_2_MEASURED):
        for delta in ("0", DELTA):
            for variant in (fits.THEOREM, fits.CODED, fits.OURS):
                yield Cell("figure 2", "adult", variant, epsilon, delta, FIGURE_2, "folds")


def pool() -> list[Setting]:
    """What Figure 3 picks from here: the settings that the authors picked somewhere on Adult."""
    return list(dict.fromkeys(SETTINGS["adult"].values()))


def figure_3() -> Iterator[Cell]:
    for epsilon in EPSILONS:
        for delta in ("0", DELTA):
            for at in pool():
                yield Cell("figure 3", "adult", fits.OURS, epsilon, delta, at, "folds")


def trees() -> Iterator[Cell]:
    """Table 2's other learner, at settings of Table 1's grid, where there is `lazybb-tree`."""
    for name in TREE_SETS:
        for epsilon in TREE_EPSILONS:
            for variant in (*fits.TREES, fits.OURS):
                for at in TREE_SETTINGS:
                    yield Cell("trees", name, variant, epsilon, "0", at)


def work(
    parts: Sequence[str], folder: Path | None, repeats: int, variants: Sequence[str] | None
) -> Iterator[tuple[str, Callable[[], Record], int]]:
    """(key, what makes the record, number of fits that it has)."""
    sources = {"curves": curves, "repository": repository, "figure 2": figure_2, "figure 3": figure_3, "trees": trees}
    for part in (part for part in parts if part in sources):
        for cell in (cell for cell in sources[part]() if cell.variant in (variants or (cell.variant,))):
            times = 1 if cell.variant == fits.LIMIT or part in ("figure 3", "trees") else repeats
            yield cell.key, partial(fits.run, cell, folder, times), times * 5
    if "figure 1" in parts:
        for variant in other.ADVANTAGE_VARIANTS:
            yield other.advantage_cell(variant).key, partial(other.advantage_record, variant, folder), 0
    if "table 4" in parts:
        yield other.model_cell().key, partial(other.model_record, folder), 0
    if "baselines" in parts:
        for name in NAMES:
            yield f"baselines|{name}", partial(other.baseline_record, name, folder), 0
    if "peers" in parts:
        for name in peers.SETS:
            yield f"peers|{name}|rademacher|1|0", partial(peers.rademacher_record, name, folder), 0
            for epsilon in peers.EPSILONS:
                yield f"peers|{name}|DP-LR|{epsilon}|0", partial(peers.regression_record, name, epsilon, folder), 0


def read(file: Path) -> dict[str, Record]:
    """Records by key; of equal keys the last."""
    return {record["key"]: record for record in read_lines(file)}


def save(file: Path, records: dict[str, Record]) -> None:
    write_lines(file, (record for _, record in sorted(records.items())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of codrna.parquet and mushroom.parquet")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeats", type=int, default=4, help="five fits each")
    parser.add_argument("--variants", nargs="+", choices=fits.VARIANTS, help="of the cells, these alone")
    parser.add_argument("--fresh", action="store_true", help="fit again what is there")
    parser.add_argument("--report", action="store_true", help="fit nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "paper.jsonl.gz"
    records = read(file)
    if not asked.report:
        for key, make, fitted in work(asked.only, folder_of(asked.data), asked.repeats, asked.variants):
            old = records.get(key)
            if asked.fresh or not old or len(old.get("accuracy_of_fits", ())) < fitted or stale([old], fits.today):
                records[key] = make()
                append_lines(file, records[key])
                print(key, flush=True)
        save(file, records)
    write(records, asked.out)


if __name__ == "__main__":
    main()
