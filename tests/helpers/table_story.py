"""A table of a stranger's from its draft to predictions, by the command line in this process, as they would type it."""

from __future__ import annotations

import csv
import json
import re
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
        return [row.get("label") or row["value"] for row in self.predict(name, file)]

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


def filled_in(draft: str, answers: Mapping[str, object], ignored: Sequence[str] = (), names: Sequence[str] = ()) -> str:
    """The draft as a person leaves it: `answers` in its place, of `target`, `records` and by column; these columns are
    `ignored` instead, and they are named so where the draft numbers them.
    """
    for at, name in enumerate(names, 1):
        draft = draft.replace(f'"column_{at}"', json.dumps(name, ensure_ascii=False))
    target, lines, left_out = answers["target"], [], [*ignored]
    for line in draft.splitlines():
        key = re.match(r'  "([^"]*)": ', line)
        if line.startswith("target:"):
            lines.append(f"target: {json.dumps(target, ensure_ascii=False)}")
        elif line.startswith("records:"):
            lines.append(f"records: {answers['records']}")
        elif key and (key[1] == target["name"] or key[1] in ignored):
            continue
        elif key and key[1] in answers:
            lines.append(f"  {json.dumps(key[1], ensure_ascii=False)}: {answers[key[1]]}")
        elif line.startswith("  - "):
            left_out.append(json.loads(line[4:].partition(" #")[0]))
        elif not line.startswith("ignore:"):
            lines.append(line)
    text = "\n".join([*lines, f"ignore: {json.dumps(left_out, ensure_ascii=False)}", ""])
    assert not re.search(r"^[^#]*FILL-IN", text, re.MULTILINE), text
    return text
