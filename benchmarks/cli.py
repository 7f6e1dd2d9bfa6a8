"""What a command costs before and while it answers: benchmarks/results/cli.md.

    python -m benchmarks.cli [--times 7] [--out benchmarks/results]

A home with one dataset of shipped Adult and two models; each command is a new process, as it is when a person types it.
Processor time is user and system time of that process, the least of several; modules are those that it has loaded.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from serving.cli.app import TREE

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "examples" / "data"
HEAVY = ("numpy", "scipy", "numba", "sklearn", "pyarrow", "onnx", "onnxruntime", "sqlalchemy", "pydantic")
REFUSED = 0.9
HELP = 0.25
COMMANDS = (
    ("--help", HELP),
    *((f"{name} --help", HELP) for name in TREE),
    ("token list", 0.6),
    ("grant list", 0.6),
    ("dataset list", 0.6),
    ("job list", 0.6),
    ("model list", 0.6),
    ("model show adult", 0.6),
    ("model explain adult", 0.6),
    ("ledger audit", 0.6),
    ("key list", 0.6),
    ("verify {model}", 0.6),
    ("plan adult --learner lazybb --epsilon 0.1", 0.6),
    ("plan adult --learner ebm --epsilon 0.1", 0.6),
    ("plan adult --learner lazybb --epsilon 50", REFUSED),
    ("dataset show adult", 0.6),
)
LOOK = """
import sys, atexit
atexit.register(lambda: print(len(sys.modules), *sorted(set({heavy}) & set(sys.modules)), file=sys.stderr))
from serving.cli.app import main
sys.argv[1:] = {words}
main()
"""


@dataclass(frozen=True)
class Cost:
    """Of one command: seconds of processor time; how many modules it loads, and which of HEAVY are among them."""

    command: str
    bound: float
    seconds: float
    modules: int
    heavy: tuple[str, ...]


def environment(home: Path) -> dict[str, str]:
    """This one's, for a home of its own. What is compiled is kept, as it is of what pip installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "DPSERVE_HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def made(folder: Path) -> Path:
    """A home with something in it."""
    home = folder / "home"
    parts = (
        "init",
        f"dataset register adult --data {DATA / 'adult_train.parquet'} --schema {DATA / 'adult.schema.yaml'} "
        "--epsilon 3 --delta 1e-5 --unit record",
        "train adult --learner lazybb --epsilon 0.2 --set rounds=50",
        "train adult --learner lazybb --epsilon 0.2 --set rounds=50",
    )
    for words in parts:
        command = [sys.executable, "-m", "serving.cli.app", *words.split()]
        subprocess.run(command, check=True, env=environment(home), capture_output=True)
    return home


def cost(home: Path, text: str, bound: float, times: int) -> Cost:
    """The least of so many runs."""
    words = text.format(model=home / "models" / "adult" / "1").split()
    command = [sys.executable, "-c", LOOK.format(heavy=HEAVY, words=words)]
    taken, said = [], ""
    for _ in range(times):
        seconds, said = ran(home, command, 3 if bound == REFUSED else 0)
        taken.append(seconds)
    count, *heavy = said.splitlines()[-1].split()
    name = f"dpserve {text.format(model='DIR')}"
    return Cost(name, bound, min(taken), int(count), tuple(heavy))


def ran(home: Path, command: list[str], code: int) -> tuple[float, str]:
    """Seconds of processor time, and what it said."""
    child = subprocess.Popen(
        command, env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == code, said
    return usage.ru_utime + usage.ru_stime, said


def report(costs: list[Cost], times: int) -> str:
    """The page."""
    lines = [
        f"| `{each.command}` | {each.seconds:.2f} | {each.bound:g} | {each.modules} "
        f"| {', '.join(each.heavy) or 'none'} |"
        for each in costs
    ]
    return PAGE.format(
        times=times, machine=platform.machine(), python=platform.python_version(), lines="\n".join(lines)
    )


PAGE = """# Speed of the command line

Made by `python -m benchmarks.cli`: each command as a new process, the least of {times} runs, in seconds of processor
time (user and system) on {machine} with Python {python}. The home holds Adult and two models. The goal is .25 s for
help, .6 s for what trains nothing, and .3 s more where a refusal says what would fit.

| command | seconds | goal | modules | of the heavy ones it loads |
|---|---|---|---|---|
{lines}

Lists load what reads the ledger and nothing that computes; a list of models holds each file against the ledger that
issued it. A price loads the learner whose plan it rehearses, and neither scikit-learn, which only fits and searches
need, nor ONNX, where a look at a plan says that its model can be exported, nor a compiler: claims are derived by numpy,
three of them for a plan (`training/calibration/calibrate.py`). A refusal that says what would fit derives half a dozen:
what is far too much is refused by the bounds that are cheap, for what it costs at least. The budgets of a dataset
derive those of every learner. Each command works its prices out anew. Whoever verifies a model opens it (onnxruntime);
who looks at one, or has it explained, reads its released numbers, verified as well. An audit derives every claim by a
second way. On a terminal a spinner shows after half a second.
"""


def main(arguments: list[str] | None = None) -> None:
    """Run all of it and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cli")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        home = made(Path(folder))
        costs = [cost(home, text, bound, given.times) for text, bound in COMMANDS]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "cli.md").write_text(report(costs, given.times), "utf-8")


if __name__ == "__main__":
    main()
