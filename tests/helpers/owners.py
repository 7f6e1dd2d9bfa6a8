"""A population of owners with two numbers and a category each, what they would report, and a home that asks them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from accountant.home import Home
from dpserve_verify.errors import InputError
from local.campaign import campaigns
from local.campaign.defining import CampaignRequest
from local.owner.own_rows import labels
from local.reports.definition import Definition
from local.reports.directions import directions, scores
from local.reports.statistics import own_vectors
from local.turns.definition import BoostedDefinition
from local.turns.owned_scores import scores_in
from local.turns.so_far import read_so_far
from local.turns.turns import document_after
from models.features.features import encode_columns

SCHEMA = """\
target: {name: answer, classes: ["no", "yes"]}
records: 10
features:
  a: {type: numeric, range: [-3, 3], bins: 32}
  b: {type: numeric, range: [-3, 3], bins: 32}
  c: {type: categorical, values: [u, v]}
"""


LABELS = ("no", "yes", "maybe")


def schema(classes: int = 2) -> str:
    """Of people who answer with one of so many, 2 or 3."""
    return SCHEMA.replace('["no", "yes"]', str(list(LABELS[:classes])))


def people(count: int, seed: int = 0, classes: int = 2) -> dict[str, np.ndarray]:
    """Columns of so many rows, the answer among them."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, count))
    c = rng.choice(["u", "v"], count)
    answer = np.where(a - b + (c == "u") + 0.3 * rng.standard_normal(count) > 0.5, "yes", "no")
    if classes == 3:
        drawn = np.stack([a + (c == "u"), b, -a - b], axis=1) + 0.3 * rng.standard_normal((count, 3))
        answer = np.array(LABELS)[drawn.argmax(axis=1)]
    return {"a": a, "b": b, "c": c, "answer": answer}


def write(path: Path, columns: dict[str, np.ndarray]) -> Path:
    """The columns as a .csv."""
    pyarrow.csv.write_csv(pa.table(columns), path)
    return path


def asking(folder: Path, home: Home, owners: int, least: int | None = None, name: str = "survey", **more: str) -> None:
    """A population and an open campaign among it."""
    classes = int(more.get("classes", "2"))
    population = "folk" if classes == 2 else f"folk{classes}"
    (folder / "schema.yaml").write_text(schema(classes))
    public = {key: value for key, value in people(300, 9).items() if key != "answer"}
    if not any(each.registration.name == population for each in home.ledger.datasets()):
        campaigns.found_population(home, population, folder / "schema.yaml", owners, "10", None)
    asked = CampaignRequest(
        name, population, more.get("learner", "local-linear"), more.get("epsilon", "2"), owners,
        write(folder / "public.csv", public), least, rounds=int(more["rounds"]) if "rounds" in more else None,
    )  # fmt: skip
    open_anyway(home, asked)


def open_anyway(home: Home, asked: CampaignRequest) -> None:
    """Open a campaign; one of a few owners whose forecast is no better than guessing as well, which then says so."""
    try:
        campaigns.open_campaign(home, asked, "steward")
    except InputError as error:
        if not error.message.startswith("forecast: "):
            raise
        campaigns.open_campaign(home, replace(asked, although_noise=True), "steward")


def reports(definition: Definition, columns: dict[str, np.ndarray]) -> np.ndarray:
    """What owners of one row each report, drawn as they draw."""
    z = definition.coordinates.of(encode_columns(definition.features, columns))
    y, _ = labels(columns["answer"].tolist(), definition.classes)
    return reports_of(definition, own_vectors(definition.learner, z, y, np.ones(len(y), np.int64)))


def reports_of(definition: Definition, own: np.ndarray) -> np.ndarray:
    """What owners of these vectors report."""
    numbers = np.arange(len(own))
    vectors = directions(bytes.fromhex(definition.seed), numbers, definition.candidates, definition.dimension)
    return definition.mechanism.draw(scores(vectors, own))


def put(home: Home, name: str, values: np.ndarray) -> None:
    """The reports (n,) of the first owners, as if they had come by the door; where all answer at once."""
    with closing(sqlite3.connect(campaigns.folder_of(home, name) / campaigns.REPORTS)) as store, store:
        store.executemany("INSERT INTO report VALUES (?, ?)", list(enumerate(values.tolist())))


def answer_turn(home: Home, name: str, columns: dict[str, np.ndarray], most: int | None = None) -> int:
    """Everybody whose turn it is answers, as they draw, or so many of them; the turn. The last one by the door."""
    definition = campaigns.load(home, name).definition
    assert isinstance(definition, BoostedDefinition)
    turn = campaigns.state(home, name)["turn"]
    here = np.array([n for n in range(definition.owners) if definition.turn_of(n) == turn][:most])
    mine = {key: value[here] for key, value in columns.items()}
    codes = encode_columns(definition.features, mine)
    y, _ = labels(mine["answer"].tolist(), definition.classes)
    document = document_after(campaigns.folder_of(home, name), turn - 1)
    so_far = read_so_far(document, definition.features, definition.classes)
    wanted = scores_in(definition, turn, codes, y, np.ones(len(here), np.int64), so_far, here)
    values = definition.mechanism_in(turn).draw(wanted).tolist()
    with closing(sqlite3.connect(campaigns.folder_of(home, name) / campaigns.REPORTS)) as store, store:
        store.executemany("INSERT INTO report VALUES (?, ?)", list(zip(here[:-1].tolist(), values[:-1], strict=True)))
    campaigns.receive(home, name, campaigns.invitation(home, name, int(here[-1])), values[-1])
    return turn
