"""A population of owners with two numbers and a category each, what they would report, and a home that asks them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from accountant.home import Home
from models.features import encode_columns
from training.local import campaigns
from training.local.definition import Definition
from training.local.directions import directions, scores
from training.local.statistics import own_vectors

SCHEMA = """\
target: {name: answer, classes: ["no", "yes"]}
records: 10
features:
  a: {type: numeric, range: [-3, 3], bins: 32}
  b: {type: numeric, range: [-3, 3], bins: 32}
  c: {type: categorical, values: [u, v]}
"""


def people(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns of so many rows, the answer among them."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, count))
    c = rng.choice(["u", "v"], count)
    answer = np.where(a - b + (c == "u") + 0.3 * rng.standard_normal(count) > 0.5, "yes", "no")
    return {"a": a, "b": b, "c": c, "answer": answer}


def write(path: Path, columns: dict[str, np.ndarray]) -> Path:
    """The columns as a .csv."""
    pyarrow.csv.write_csv(pa.table(columns), path)
    return path


def asking(folder: Path, home: Home, owners: int, least: int | None = None, name: str = "survey", **more: str) -> None:
    """A population and an open campaign among it."""
    (folder / "schema.yaml").write_text(SCHEMA)
    public = {key: value for key, value in people(300, 9).items() if key != "answer"}
    if not any(each.registration.name == "folk" for each in home.ledger.datasets()):
        campaigns.found_population(home, "folk", folder / "schema.yaml", owners, "10", None)
    asked = campaigns.Asked(
        name, "folk", more.get("learner", "local-linear"), more.get("epsilon", "2"), owners,
        write(folder / "public.csv", public), least,
    )  # fmt: skip
    campaigns.open_campaign(home, asked, "steward")


def reports(definition: Definition, columns: dict[str, np.ndarray]) -> np.ndarray:
    """What owners of one row each report, drawn as they draw."""
    numbers = np.arange(len(columns["answer"]))
    z = definition.coordinates.of(encode_columns(definition.features, columns))
    y = np.where(columns["answer"] == "yes", 1.0, -1.0)
    own = own_vectors(definition.learner, z, y, np.ones(len(y), np.int64))
    vectors = directions(bytes.fromhex(definition.seed), numbers, definition.candidates, definition.dimension)
    return definition.mechanism.draw(scores(vectors, own))
