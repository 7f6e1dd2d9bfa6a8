"""Processor seconds of every learner's default fit beside interpret's DP-EBM, in one process that has fitted before.

    taskset -c 0 python -m studies.speed.warm_fits --rows 10000 adult 100000 1000000 --repeat 3

One processor, so one thread each. Ours and the peer take turns, so that other work on the machine falls on both; the
least of the turns counts. The peer must be installed (benchmarks/requirements.in). A line of JSON a set, and in the end
the table of docs/results/measured.md: what part of the peer's seconds a fit takes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings

from benchmarks.speed import DP_EBM, LEARNERS, OURS, made, rows_named, table_of
from training.rows.schema.schema import parse_schema

WARM = (1_000, 10_000)  # rows of the first fits: what few and what many records ask for


def of_set(name: str, learners: list[str], repeat: int) -> dict[str, float]:
    """The least processor seconds of each learner, and of the peer, on Adult or on so many made rows."""
    some = [made(rows) for rows in WARM]
    raw, table = rows_named(name)
    schema = parse_schema(raw)
    best: dict[str, float] = {}
    for turn in range(repeat + 1):
        for learner in (*learners, DP_EBM):
            fit = LEARNERS[learner][0]
            if not turn:
                for first, rows in some if learner != DP_EBM else some[:1]:
                    fit(parse_schema(first), rows)()
                continue
            work = fit(schema, table)
            started = time.process_time()
            work()
            best[learner] = min(best.get(learner, float("inf")), time.process_time() - started)
    return best


def main() -> None:
    """Set by set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["10000", "adult", "100000"], help="made rows, or adult")
    parser.add_argument("--learners", nargs="+", choices=list(OURS), default=list(OURS))
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    for name in given.rows:
        found[name] = of_set(name, given.learners, given.repeat)
        print(json.dumps({"rows": name, "load": os.getloadavg()[0], **found[name]}), flush=True)
    lines = [[each, *(f"{best[each] / best[DP_EBM]:.2f}" for best in found.values())] for each in given.learners]
    lines.append(["DP-EBM, seconds", *(f"{best[DP_EBM]:.2f}" for best in found.values())])
    print(table_of(["learner", *found], lines))


if __name__ == "__main__":
    main()
