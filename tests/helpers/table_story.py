"""A table of a stranger's from its draft to predictions, by the command line in this process, as they would type it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.cli.app import run

TRAIN = ("--learner", "lazybb", "--epsilon", "20", "--set", "rounds=8")


@dataclass
class Stranger:
    """Somebody with a home of their own and a folder of files."""

    folder: Path
    said: Callable[[], pytest.CaptureResult[str]]

    def type(self, *words: object, code: int = 0) -> pytest.CaptureResult[str]:
        """Run a command that ends with this exit code; what it printed."""
        self.said()
        ended = run([*map(str, words)])
        printed = self.said()
        assert ended == code, (words, ended, printed)
        return printed

    def draft(self, file: Path, *more: str) -> str:
        return self.type("schema", "draft", file, *more).out

    def learn(self, file: Path, schema: str, *more: object, train: Sequence[object] = TRAIN) -> list[str]:
        """Check, register, plan, train and predict the file itself: the labels, in the order of its rows."""
        declared = self.folder / f"{file.stem}.yaml"
        declared.write_text(schema, "utf-8")
        name = file.stem
        self.type("schema", "check", declared, "--data", file)
        budget = ("--epsilon", 40, "--delta", "1e-6", "--relation", "add-remove", "--unit", "record")
        self.type("dataset", "register", name, "--data", file, "--schema", declared, *budget, *more)
        self.type("plan", name, *train)
        self.type("train", name, *train)
        return [row["label"] for row in self.predict(name, file)]

    def predict(self, model: str, file: Path, *more: object) -> list[dict[str, str]]:
        out = self.folder / f"{model}.predicted.csv"
        self.type("predict", model, "--data", file, "--out", out, *more)
        with out.open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))


def stranger_in(folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Stranger:
    """A stranger with a new home."""
    patch.setenv("DPSERVE_HOME", str(folder / "home"))
    new = Stranger(folder, capsys.readouterr)
    new.type("init")
    return new


def filled_in(draft: str, answers: Mapping[str, object]) -> str:
    """The draft with a person's answers in place of FILL-IN: of `target`, `records`, and by column; the rest stays."""
    lines = []
    for line in draft.splitlines():
        key = line.strip().partition(":")[0].strip('"')
        if line.startswith("target:"):
            lines.append(f"target: {json.dumps(answers['target'], ensure_ascii=False)}")
        elif line.startswith("records:"):
            lines.append(f"records: {answers['records']}")
        elif (
            line.startswith("  ")
            and not line.startswith("  -")
            and isinstance(answers["target"], dict)
            and (key == answers["target"]["name"])
        ):
            continue
        elif "FILL-IN" in line and not line.startswith("#"):
            assert key in answers, f"nobody says what {key!r} is: {line}"
            lines.append(f"  {json.dumps(key, ensure_ascii=False)}: {answers[key]}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
