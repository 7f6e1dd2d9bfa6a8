"""A platform that asks institutions over HTTPS, two aggregators, and institutions with homes and rows of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import owners
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sharing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from https import served
from in_process import Site

from accountant.home import Home
from accountant.ledger.families.records import NewPeople, Unit
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Plan, Release
from local.aggregator import rounds
from local.aggregator.settings import PUBLIC
from local.aggregator.settings import read_settings as read_aggregator_settings
from local.campaign import campaigns, shared_campaigns
from local.campaign.defining import CampaignRequest, read_aggregator
from local.doors import campaigns as doors
from local.doors import institutions
from local.institution import program
from local.institution.settings import read_settings
from local.reports.shared import Aggregator as AggregatorKeys
from local.rounds.definition import RoundsDefinition
from local.rounds.playing import Rehearsed
from training.datasets.datasets import register
from training.jobs.draw_journal import code
from training.rows.schema.schema import parse_schema

FEW = (("epochs", "2"), ("rate", "0.5"))  # of small schemas: 3 histograms, a start, 6 sums, and how sure they are: 11
TOML = """\
url = "{url}"
trust = "{trust}"
{ca}dataset = "rows"
seen = "seen"

[policy]
largest_epsilon = "4"
largest_delta = "0.00001"
aggregators = ["{first}"]
"""


class Hospitals:
    """`homes`: of the institutions, each with a dataset `rows`; `whom`: the folders of the aggregators."""

    def __init__(self, folder: Path, home: Home, url: str, ca: Path | None = None) -> None:
        self.folder, self.home, self.url, self.ca = folder, home, url, ca
        self.whom = sharing.aggregators(folder, home, url, ca)
        self.homes: list[Home] = []

    def found(
        self,
        tables: Sequence[pa.Table],
        schema: bytes,
        unit: str = "record",
        contributions: int = 1,
        epsilon: str = "5",
        holdout: str | None = None,
    ) -> None:
        """A population, and an institution with each of these rows."""
        (self.folder / "schema.yaml").write_bytes(schema)
        campaigns.found_population(
            self.home, "clinics", self.folder / "schema.yaml", len(tables), "50", None, "0.0001", unit, contributions
        )
        for at, table in enumerate(tables):
            self.homes.append(self.institution(f"institution-{at}", table, unit, contributions, epsilon, holdout))

    def institution(
        self, name: str, table: pa.Table, unit: str, contributions: int, epsilon: str, holdout: str | None = None
    ) -> Home:
        """The home of one, and its settings beside it."""
        home = Home.init({"DPSERVE_HOME": str(self.folder / name)})
        pq.write_table(table, self.folder / f"{name}.parquet")
        total = Budget.of(epsilon, "0.00001")
        schema = self.folder / "schema.yaml"
        register(
            home, "rows", self.folder / f"{name}.parquet", schema, total, Relation.ADD_REMOVE, unit, contributions,
            holdout=None if holdout is None else Decimal(holdout),
        )  # fmt: skip
        first = read_aggregator(self.whom[0] / PUBLIC).fingerprint
        ca = "" if self.ca is None else f'ca = "{self.ca}"\n'
        text = TOML.format(url=self.url, trust=self.home.path / "trust.json", ca=ca, first=first)
        self.settings(home).parent.mkdir(exist_ok=True)
        self.settings(home).write_text(text)
        return home

    @staticmethod
    def settings(home: Home) -> Path:
        return home.path.with_name(f"{home.path.name}-own") / "institution.toml"

    def ask(self, name: str, least: int | None = None, epsilon: str = "2", **more: Any) -> RoundsDefinition:
        """An open campaign."""
        asked = CampaignRequest(
            name, "clinics", more.pop("learner", "ebm"), epsilon, len(self.homes), None, least,
            more.pop("model", None), "0.000001", tuple(each / PUBLIC for each in self.whom),
            settings=more.pop("settings", FEW), patience=more.pop("patience", 60), part=more.pop("part", "holdout"),
        )  # fmt: skip
        owners.open_anyway(self.home, asked)
        definition = campaigns.load(self.home, name).definition
        assert isinstance(definition, RoundsDefinition)
        return definition

    def contribute(
        self, at: int, name: str, wait: float = 30.0, home: Home | None = None, number: int | None = None
    ) -> Any:
        """One institution answers, in this process."""
        own = home or self.homes[at]
        invitation = campaigns.invitation(self.home, name, at if number is None else number)
        return program.answer(own, read_settings(self.settings(own)), name, invitation, "operator", wait)

    def aggregate(self, at: int, name: str, wait: float = 30.0, folder: Path | None = None) -> Any:
        """One aggregator answers, in this process."""
        token = shared_campaigns.token_for(self.home, name, at)
        return rounds.answer_campaign(read_aggregator_settings(folder or self.whom[at]), name, token, wait)

    def everybody(self, name: str, **instead: Callable[[], Any]) -> dict[str, Any]:
        """What came of all of them at once, by name; `instead`: what one of them does in place of answering."""
        acts: dict[str, Callable[[], Any]] = {
            **{f"institution_{at}": lambda at=at: self.contribute(at, name) for at in range(len(self.homes))},
            **{f"aggregator_{at}": lambda at=at: self.aggregate(at, name) for at in (0, 1)},
            **instead,
        }
        found: dict[str, Any] = {}

        def run(key: str, act: Callable[[], Any]) -> None:
            try:
                found[key] = act()
            except Exception as error:  # the test looks at it
                found[key] = error

        threads = [threading.Thread(target=run, args=item) for item in acts.items()]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return found


@contextmanager
def asking(folder: Path) -> Iterator[Hospitals]:
    """A platform that listens."""
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(home.path))
        with served(Site(home, (*doors.DOORS, *institutions.DOORS)), folder) as (url, ca):
            yield Hospitals(folder, home, url, ca)


def people(count: int, seed: int = 0, classes: int = 2) -> pa.Table:
    """Rows of the small schema."""
    return pa.table(owners.people(count, seed, classes))


def schema(records: int, classes: int = 2) -> bytes:
    """The small schema, of about so many rows."""
    return owners.schema(classes).replace("records: 10", f"records: {records}").encode()


def charged(home: Home) -> list[dict[str, Any]]:
    """The reservations of a home."""
    values = [entry.value for entry in home.ledger.log.entries()]
    return [value for value in values if value["type"] == "reserved"]


def columns(table: pa.Table) -> dict[str, np.ndarray]:
    return {name: np.asarray(table[name].to_pylist()) for name in table.column_names}


def made_definition(asked: Rehearsed, text: str, unit: str, contributions: int) -> RoundsDefinition:
    """A definition that nobody has opened."""
    keys = [AggregatorKeys(name, *(generate().public_key().public_bytes_raw().hex() for generate in GENERATE))
            for name in ("first", "second")]  # fmt: skip
    read = parse_schema(text.encode())
    of = Unit() if unit == "record" else Unit("person", unit, contributions)
    return RoundsDefinition(
        "made", "clinics", "made", asked.learner, Decimal(2), 4, 2, read.target, tuple(map(str, read.classes or ())),
        read.features, Decimal("0.000001"), text, of, asked.chosen, asked.settings, asked.recipe.plan,
        asked.recipe.unit, asked.numbers, 60, code(), tuple(keys),
    )  # fmt: skip


def plan_of_selections() -> Plan:
    """What no sum answers."""
    return Plan.of([Release("select a 1-rule by weighted agreement", "exponential", "range", 1, BoundedRange(ONE))])


NEW = NewPeople("made for the test", "steward")
ONE = Decimal(1)
GENERATE = (X25519PrivateKey.generate, Ed25519PrivateKey.generate)
