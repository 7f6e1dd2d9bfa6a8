"""A refined schema names its profile: in its file, in the dataset's entry, and in every certificate, with the price."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from accountant.audit.audit import audit_home
from accountant.certificates.profile import PROFILE
from accountant.certificates.worth import WORTH
from accountant.errors import SchemaError
from accountant.home import Home
from dpserve_verify.audit.replay import Replay
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget, Relation
from models.worth.words import short_worth
from training.datasets.datasets import register
from training.jobs import job
from training.measuring.profile.refine import refine
from training.measuring.worth.evaluate import open_model
from training.requests import EvaluationRequest, JobRequest, ProfileRequest
from training.rows.schema.schema import parse_schema

PEOPLE, TOTAL = 3000, Budget.of("20", "0.000001")
SCHEMA = f"""
target: {{name: y, classes: ["no", "yes"]}}
records: {PEOPLE}
ignore: [pid]
features:
  wide: {{type: numeric, range: [-5000, 7000], bins: 16}}
  town: {{type: categorical, values: [a, b, nobody]}}
"""


@dataclass
class Story:
    """A dataset of people with rows kept aside; two schemas refined from a profile of each part, and a third from both
    profiles of what is learnt from; a model of each.
    """

    home: Home
    folder: Path
    profiles: dict[str, dict]

    def schema(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"


def rows(folder: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    table = {
        "pid": [f"p{i}" for i in range(PEOPLE)], "wide": random.uniform(0, 100, PEOPLE),
        "town": random.choice(["a", "b"], PEOPLE), "y": random.choice(["no", "yes"], PEOPLE),
    }  # fmt: skip
    pq.write_table(pa.table(table), folder / f"rows-{seed}.parquet")
    return folder / f"rows-{seed}.parquet"


@pytest.fixture(scope="module")
def story(tmp_path_factory) -> Story:
    folder = tmp_path_factory.mktemp("refined")
    home, made = Home.init(ledgers.place(folder / "home")), Story
    told = made(home, folder, {})
    told.schema("d").write_text(SCHEMA)
    register(home, "d", rows(folder, 0), told.schema("d"), TOTAL, Relation.ADD_REMOVE, "pid", holdout=Decimal("0.5"))

    def profile_and_refine(dataset: str, new: str, seed: int, epsilon: str, part: str | None = None) -> None:
        found = PROFILE.open(home, job.measure(home, ProfileRequest(dataset, epsilon, part=part), by="me")["job"])[2]
        told.profiles[new] = {
            "entry": found.entry, "dataset": dataset, "part": part or "training",
            "epsilon": found.form.claim.epsilon, "delta": found.form.claim.delta, "samePeople": True,
        }  # fmt: skip
        told.schema(new).write_text(refine(told.schema(dataset).read_bytes(), found).text)
        register(home, new, rows(folder, seed), told.schema(new), None, Relation.ADD_REMOVE, "pid", families=["d"])
        job.train(home, JobRequest(new, "forest", "0.3", parameters={"trees": 3}), by="me")

    profile_and_refine("d", "d1", 1, "0.5", "training")
    profile_and_refine("d1", "d2", 2, "0.4", "training")
    profile_and_refine("d", "d3", 3, "0.7", "holdout")
    return told


def certificate(story: Story, name: str) -> dict:
    return open_model(story.home, name).certificate.statement["predicate"]


def named(lines: list[dict]) -> list[dict]:
    """What a refined schema's file says of its profiles, from what a statement says of what it was made from."""
    assert all((line["kind"], line["through"]) == ("profile", "schema") for line in lines)
    return [
        {key: line[key] for key in ("entry", "dataset", "part", "epsilon", "delta", "samePeople")} for line in lines
    ]


def test_certificates_name_each_profile_and_what_they_come_to(story):
    for name, lines in (("d1", ["d1"]), ("d2", ["d1", "d2"]), ("d3", ["d3"])):
        stated = certificate(story, name)
        expected = [story.profiles[each] for each in lines]
        assert named(stated["dataset"]["madeFrom"]) == expected
        entry = story.home.ledger.log.entry(story.home.ledger.dataset(name).seq).value
        assert [line | {"samePeople": line.pop("same_people")} for line in entry["refined"]] == expected
        assert stated["accounting"]["coversPreprocessing"] is False
        claim = Decimal(stated["claim"]["epsilon"])
        own = sum(Decimal(line["epsilon"]) for line in expected if line["part"] == "training")
        aside = sum(Decimal(line["epsilon"]) for line in expected if line["part"] == "holdout")
        together = stated["dataset"]["together"]
        assert Decimal(together["epsilon"]) == max(claim + own, aside) > claim
        deltas = sum(Decimal(line["delta"]) for line in expected if line["part"] == "training")
        assert Decimal(together["delta"]) == max(Decimal(stated["claim"]["delta"]) + deltas, Decimal("0.000001"))
    assert "madeFrom" not in certificate_of_unrefined(story)["dataset"]


def certificate_of_unrefined(story: Story) -> dict:
    job.train(story.home, JobRequest("d", "forest", "0.2", parameters={"trees": 3}, model="plain"), by="me")
    return certificate(story, "plain")


def test_an_evaluation_says_whether_the_bins_have_seen_its_rows(story):
    for name, seen in (("d1", []), ("d3", [story.profiles["d3"]["entry"]])):
        done = job.measure(story.home, EvaluationRequest(name, name, "0.5"), by="me")
        form = WORTH.open(story.home, done["job"])[2].form
        assert form.rows.part == "holdout"
        assert (form.rows.seen, form.rows.seen_by_bins or []) == (bool(seen), seen)
        assert [line.entry for line in form.rows.made_from or ()] == [story.profiles[name]["entry"]]
        assert ("bins" in short_worth(done["worth"])) == bool(seen)
        assert done["worth"].get("seen_by_bins", []) == seen
        own = Decimal(form.claim.epsilon)
        sums = (own, Decimal(story.profiles["d1"]["epsilon"])), (own + Decimal(story.profiles["d3"]["epsilon"]),)
        assert Decimal(form.rows.together.epsilon) == max(sums[name == "d3"])


def test_a_profile_of_a_refined_dataset_names_the_profile_before(story):
    found = PROFILE.open(story.home, story.home.ledger.log.entry(story.profiles["d2"]["entry"]).value["reservation"])[2]
    assert [line.entry for line in found.form.rows.made_from] == [story.profiles["d1"]["entry"]]
    sums = Decimal(story.profiles["d1"]["epsilon"]) + Decimal(found.form.claim.epsilon)
    assert Decimal(found.form.rows.together.epsilon) == sums


@pytest.mark.parametrize("change", [
    {"entry": 10**6}, {"entry": 1}, {"dataset": "d2"}, {"part": "holdout"}, {"epsilon": "0.1"}, {"delta": "0"},
])  # fmt: skip
def test_a_line_that_the_ledger_does_not_have_is_refused(story, change):
    body = yaml.safe_load(story.schema("d1").read_text())
    body["refined"][0] |= change
    path = story.folder / "changed.yaml"
    path.write_text(yaml.safe_dump(body))
    size = story.home.ledger.log.size()
    with pytest.raises(InputError, match="schema: refined: entry"):
        register(story.home, "changed", rows(story.folder, 9), path, None, Relation.ADD_REMOVE, "pid", families=["d"])
    assert story.home.ledger.log.size() == size
    assert "changed" not in {each.registration.name for each in story.home.ledger.datasets()}


def test_a_file_that_says_it_was_refined_and_names_no_profile_is_refused(story):
    head, _, rest = story.schema("d1").read_text().partition("target:")
    body = yaml.safe_load(f"target:{rest}")
    del body["refined"]
    path = story.folder / "taken-out.yaml"
    path.write_text(head + yaml.safe_dump(body))
    with pytest.raises(SchemaError, match="refine it again"):
        register(story.home, "out", rows(story.folder, 9), path, None, Relation.ADD_REMOVE, "pid", families=["d"])


@pytest.mark.parametrize(
    "text", ["[]", "[{}]", "[{entry: 1}]", "[{entry: -1, dataset: d, part: all, epsilon: '1', delta: '0'}]"]
)
def test_a_line_of_another_form_is_refused(tmp_path, text):
    with pytest.raises(SchemaError, match="refined"):
        parse_schema(f"{SCHEMA}refined: {text}\n".encode())


def test_other_people_pay_for_the_profile_and_are_not_added_to(story):
    """A schema refined from one family's rows, of a family of its own: named, and no sum."""
    path = rows(story.folder, 4)
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "pid", pa.array([f"q{i}" for i in range(PEOPLE)])), path)
    register(story.home, "others", path, story.schema("d1"), TOTAL, Relation.ADD_REMOVE, "pid")
    job.train(story.home, JobRequest("others", "forest", "0.3", parameters={"trees": 3}), by="me")
    stated = certificate(story, "others")
    assert named(stated["dataset"]["madeFrom"]) == [story.profiles["d1"] | {"samePeople": False}]
    apart = {"datasets": ["d"], "epsilon": story.profiles["d1"]["epsilon"], "delta": story.profiles["d1"]["delta"]}
    assert stated["dataset"]["apart"] == [apart]
    assert "together" not in stated["dataset"]
    assert "other people" in stated["preprocessing"]


def test_the_audit_judges_what_entries_say_of_profiles(story):
    home = story.home
    assert audit_home(home).ok
    bodies = [json.loads(home.ledger.log.entry(at).body) for at in range(home.ledger.log.size())]
    joined = next(at for at, body in enumerate(bodies) if body.get("dataset") == "d2" and "refined" in body)
    lies = {
        "price": {"epsilon": "0.1"},
        "people": {"same_people": False},
        "entry": {"entry": 1},
        "part": {"part": "all"},
    }
    for lie in (*lies, "twice", "none", None):
        replay = Replay(home.trust)
        for at in range(joined):
            replay.read(at, canonical.encode(bodies[at]))
        changed = json.loads(json.dumps(bodies[joined]))
        if lie == "twice":
            changed["refined"] *= 2
        elif lie == "none":
            changed["refined"] = []
        elif lie:
            changed["refined"][0] |= lies[lie]
        if lie is None:
            replay.read(joined, canonical.encode(changed))
        else:
            with pytest.raises(LedgerInvalid, match="refined"):
                replay.read(joined, canonical.encode(changed))


def test_the_audit_finds_a_certificate_that_is_silent_about_a_profile(tmp_path, monkeypatch):
    home, path = Home.init(ledgers.place(tmp_path / "home")), tmp_path / "d.yaml"
    path.write_text(SCHEMA)
    register(home, "d", rows(tmp_path, 0), path, TOTAL, Relation.ADD_REMOVE, "pid")
    found = PROFILE.open(home, job.measure(home, ProfileRequest("d", "0.5"), by="me")["job"])[2]
    (tmp_path / "r.yaml").write_text(refine(path.read_bytes(), found).text)
    register(home, "r", rows(tmp_path, 1), tmp_path / "r.yaml", None, Relation.ADD_REMOVE, "pid", families=["d"])
    monkeypatch.setattr("accountant.certificates.statement.made_from_to_json", lambda _: {})
    job.train(home, JobRequest("r", "forest", "0.3", parameters={"trees": 3}), by="me")
    (problem,) = audit_home(home, ledgers.bundles(home.path)).problems
    assert "its certificate names other releases than entry" in problem
