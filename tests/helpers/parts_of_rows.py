"""Rows in parts, as a drive or a bucket holds them."""

from __future__ import annotations

from pathlib import Path

from serving.cli.app import run

SCHEMA = """
target: {name: y, classes: ["no", "yes"]}
records: 3000
features:
  lab: {type: numeric, range: [0, 1000]}
  year: {type: numeric, range: [2020, 2030]}
"""
REST = ["--epsilon", "3", "--delta", "1e-6", "--unit", "record", "--json"]


def write_parts(place: Path, parts: int = 5) -> None:
    """Files of a Hive partition."""
    for at in range(parts):
        (place / f"year={2020 + at}").mkdir(parents=True)
        lines = (f"{at * 1000 + row},{'no' if row % 3 else 'yes'}\n" for row in range(600))
        (place / f"year={2020 + at}" / "part.csv").write_text("lab,y\n" + "".join(lines))
    (place / "_SUCCESS").write_text("")


def register(name: str, data: Path | str, folder: Path) -> int:
    """By the command, with the schema in `folder`."""
    return run(["dataset", "register", name, "--data", str(data), "--schema", str(folder / "schema.yaml"), *REST])
