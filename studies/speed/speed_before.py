"""Time fits by this checkout beside the same fits by an earlier one, in turns in one run.

    python -m studies.speed.speed_before ../earlier --rows adult 100000    # a checkout with a .venv

Prints a line of JSON for each learner and set of rows, and then the table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed import table_of

ROOT = Path(__file__).resolve().parents[2]
SAME = {"cuts": "declared", "pairs": 0}  # what 11c46be had no word for, as it was
# Run by each checkout's own interpreter in its own folder: names that `benchmarks/speed.py` and `training.learners`
# have had since 11c46be. What is warmed is as much as learners ask all they ever ask of.
FIT = """
import inspect, json, sys
from benchmarks import speed
from training.learners import LEARNERS
learner, name, asked = sys.argv[1:]
made = LEARNERS[learner]
more = {key: value for key, value in json.loads(asked).items() if key in inspect.signature(made.__init__).parameters}
def fit(rows):
    schema, table = speed.parse_schema(rows[0]), rows[1]
    cells, labels = table.drop_columns([schema.target]), table[schema.target]
    return lambda: made(schema=schema, epsilon=speed.EPSILON, delta=speed.DELTA, **more).fit(cells, labels)
fit(speed.made(10_000))()
rows = speed.rows_named(name)
print(json.dumps({"rows": len(rows[1]), "features": rows[1].num_columns - 1} | speed.timed(fit(rows))))
"""


def learners_of(checkout: Path) -> list[str]:
    """What both have, by name, as this one lists them."""
    code = "from training.learners import LEARNERS; print(*LEARNERS)"
    ours, theirs = (_printed(place, code).split() for place in (ROOT, checkout))
    return [name for name in ours if name in theirs]


def _printed(place: Path, code: str, *words: str, timeout: float = 600) -> str:
    own = place / ".venv" / "bin" / "python"
    python = str(own) if own.exists() or place != ROOT else sys.executable
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", code, *words]
    done = subprocess.run(
        command, check=True, cwd=place, env=environment, stdout=subprocess.PIPE, text=True, timeout=timeout
    )
    return done.stdout.splitlines()[-1]


def beside(checkout: Path, learner: str, name: str, repeat: int, timeout: float) -> dict[str, Any]:
    """One line: seconds and processor seconds of `repeat` fits, each in a process of its own, in turns: by the earlier
    checkout, by this one doing the SAME, and by this one as it is. Which goes first changes from turn to turn.
    """
    asked = [("then", checkout.resolve(), {}), ("same", ROOT, SAME), ("now", ROOT, {})]
    found: dict[str, list[dict[str, Any]]] = {which: [] for which, _, _ in asked}
    for turn in range(repeat):
        for which, place, more in asked[turn % 3 :] + asked[: turn % 3]:
            words = (learner, name, json.dumps(more))
            found[which].append(json.loads(_printed(place, FIT, *words, timeout=timeout)))
    figures = {
        f"{which}_{key}": [line[key] for line in lines] for which, lines in found.items() for key in ("seconds", "cpu")
    }
    about = {key: found["now"][0][key] for key in ("rows", "features")}
    head = {"what": "before", "learner": learner, "data": "adult" if name == "adult" else "made"}
    return {**head, **about, "load": os.getloadavg()[0], **figures}


def report(lines: Sequence[dict[str, Any]]) -> str:
    """Return what was done, and a row for each line."""
    rows = []
    for line in lines:
        turns = [same / then for same, then in zip(line["same_cpu"], line["then_cpu"], strict=True)]
        least = [min(line[f"{which}_{key}"]) for key in ("seconds", "cpu") for which in ("then", "same", "now")]
        ratio = f"{statistics.median(turns):.2f} ({min(turns):.2f} to {max(turns):.2f})"
        name = f"{line['data']}, {line['rows']:,} x {line['features']}"
        rows.append([name, line["learner"], *(f"{figure:.2f}" for figure in least), ratio])
    head = ["rows", "learner", "seconds then", "same now", "now", "processor then", "same now", "now", "same / then"]
    said = (
        "Fits by an earlier commit (then), by this one asked for the same (declared cut points, no pairs), and by this "
        "one by its defaults (now), in turns, each in a process of its own and by its checkout's interpreter. Seconds "
        "are the least of the turns; the last column is of processor seconds turn by turn: median and range.\n"
    )
    return f"{said}\n{table_of(head, rows)}"


def main() -> None:
    """Time every learner that both checkouts have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rows", nargs="+", default=["adult", "10000", "100000"], help="made rows, or adult")
    parser.add_argument("--learners", nargs="+", help="those that both have, if none are named")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one process")
    asked = parser.parse_args()
    lines = []
    for name in asked.rows:
        for learner in asked.learners or learners_of(asked.checkout):
            lines.append(beside(asked.checkout, learner, name, asked.repeat, asked.timeout))
            print(json.dumps(lines[-1]), flush=True)
    print(report(lines))


if __name__ == "__main__":
    main()
