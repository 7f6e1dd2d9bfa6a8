"""A model that begins from a release of the same people says what that holds, at every door, and is charged for it
elsewhere: by a model, by synthetic rows, over an edit and over two steps.
"""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from accountant.audit.audit import audit_home
from accountant.errors import NameTaken
from accountant.home import Home
from dpserve_verify.audit.replay import Replay
from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.command.program import main
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget, Relation
from models.edit import editing
from models.store.listing import lines
from models.store.loading import card_of
from serving.process.registry import Served
from training.datasets import decisions
from training.datasets.datasets import register
from training.datasets.made_up import mark_beside
from training.finish.derive import derive
from training.jobs import job
from training.measuring.profile.synthetic_rows import from_profile
from training.measuring.worth.evaluate import open_model, plan
from training.measuring.worth.public_rows import learn_start
from training.requests import ChargeRequest, EvaluationRequest, JobRequest, ProfileRequest

PEOPLE = 800
SCHEMA = f"""
target: {{name: y, classes: ["no", "yes"]}}
records: {PEOPLE}
features:
  wide: {{type: numeric, range: [0, 100], bins: 8}}
  town: {{type: categorical, values: [a, b, c]}}
"""
QUICK = {"engine": "epochs", "cuts": "declared", "pairs": "0"}


@dataclass
class Story:
    """Two datasets of other people. Of `a`: first at 8; second, begun from it, at .01; third, from second, at .02; and
    a profile with synthetic rows, from which fourth begins. Of `b`: far, begun from first.
    """

    home: Home
    folder: Path
    profile: int

    def certificate(self, name: str) -> Certificate:
        return open_model(self.home, name).certificate

    def train(self, dataset: str, model: str, epsilon: str, public: str | None = None) -> None:
        parameters = QUICK if public is None else {}
        asked = JobRequest(dataset, "ebm", epsilon, parameters=parameters, model=model, public=public)
        job.train(self.home, asked, by="me")


def rows(path: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    wide = random.uniform(0, 100, PEOPLE)
    answers = np.where(wide + random.normal(0, 20, PEOPLE) > 50, "yes", "no")
    pq.write_table(pa.table({"wide": wide, "town": random.choice(["a", "b", "c"], PEOPLE), "y": answers}), path)
    return path


@pytest.fixture(scope="module")
def story(tmp_path_factory) -> Story:
    folder = tmp_path_factory.mktemp("made-from")
    home = Home.init(ledgers.place(folder / "home"))
    (folder / "s.yaml").write_text(SCHEMA)
    for seed, name in enumerate("ab"):
        path = rows(folder / f"{name}.parquet", seed)
        register(home, name, path, folder / "s.yaml", Budget.of("30", "0.00001"), Relation.ADD_REMOVE, "record")
    profile = job.measure(home, ProfileRequest("a", "0.5", around="auto"), by="me")["job"]
    told = Story(home, folder, profile)
    told.train("a", "first", "8")
    told.train("a", "second", "0.01", "first@1")
    told.train("a", "third", "0.02", "second@1")
    told.train("b", "far", "0.01", "first@1")
    return told


def sums(certificate: Certificate) -> list[tuple[str, Decimal]]:
    return [(source.dataset, Decimal(source.epsilon)) for source in certificate.form.dataset.made_from or ()]


def test_a_certificate_states_the_sum_and_what_is_behind_it_over_every_step(story):
    first, second, third = map(story.certificate, ("first", "second", "third"))
    assert first.form.dataset.made_from is None
    assert first.headline == (first.epsilon, first.delta)
    assert sums(second) == [("a", first.epsilon)]
    assert second.headline == (first.epsilon + second.epsilon, first.delta + second.delta)
    assert sums(third) == [("a", first.epsilon), ("a", second.epsilon)]
    assert third.headline[0] == first.epsilon + second.epsilon + third.epsilon
    card = card_of(open_model(story.home, "third").ensemble, third)
    assert f"{third.headline[0]:f}" in card
    assert f"y itself epsilon {third.epsilon:f}" in card  # a sentence of its own
    assert audit_home(story.home, ledgers.bundles(story.home.path)).ok


def test_the_list_of_models_shows_the_sum(story):
    """Whether a version is held by a server or looked at for the list."""
    (line,) = lines(story.home, [("third", 1)])
    served = Served("third", 1, open_model(story.home, "third"))
    third = story.certificate("third")
    for said in (line["certificate"], served.certificate):
        assert Decimal(said["epsilon"]) == third.headline[0]
        assert Decimal(said["alone"]["epsilon"]) == third.epsilon
    assert "alone" not in next(lines(story.home, [("first", 1)]))["certificate"]


def test_other_people_are_stated_apart(story):
    first, far = story.certificate("first"), story.certificate("far")
    assert far.headline == (far.epsilon, far.delta)
    (apart,) = far.form.dataset.apart or ()
    assert (apart.datasets, Decimal(apart.epsilon)) == (["a"], first.epsilon)
    assert "of other people, whose rows are in a: epsilon 8" in far.parts[-1]


def test_the_verifier_by_itself_says_the_sum_and_its_policy_reads_it(story, capsys):
    folder, trust = story.home.models / "second" / "1", story.folder / "trust.json"
    trust.write_bytes(story.home.trust.to_json())
    epsilon, _ = story.certificate("second").headline
    assert main([str(folder), "--trust", str(trust)]) == 0
    said = capsys.readouterr().out
    assert f"({epsilon:f}, 2" in said
    assert "made from the model of entry" in said
    assert main([str(folder), "--trust", str(trust), "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    alone = story.certificate("second").epsilon
    assert (Decimal(body["epsilon"]), Decimal(body["alone"]["epsilon"])) == (epsilon, alone)
    assert main([str(folder), "--trust", str(trust), "--largest-epsilon", "8"]) == 4
    capsys.readouterr()


@pytest.mark.parametrize("model", ["first", "second", "third", "far"])
def test_an_evaluation_takes_the_rows_of_a_start_for_the_model_s_own(story, model):
    with pytest.raises(InputError, match="a model may have learnt from any of them"):
        plan(story.home, EvaluationRequest(model, "a", "1"))
    done = job.measure(story.home, EvaluationRequest(model, "a", "0.2", part="training"), by="me")
    assert done["worth"]["seen"] is True
    if model not in ("far",):
        assert plan(story.home, EvaluationRequest(model, "b", "1")).to_json()["part"] == "all"


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_synthetic_rows_are_of_their_profile(story, suffix, tmp_path):
    home, path = story.home, tmp_path / f"a.synthetic.{suffix}"
    from_profile(home, story.profile, path, 400, 1, "a")
    story.train("a", f"fourth-{suffix}", "0.01", learn_start(home, JobRequest("a", epsilon="0.01"), path, "me"))
    found = story.certificate(f"fourth-{suffix}")
    (source,) = found.form.dataset.made_from or ()
    assert (source.kind, source.through, source.reservation) == ("profile", "start", story.profile)
    assert found.headline[0] == found.epsilon + Decimal(source.epsilon) > found.epsilon
    assert "made from releases that are not in this price: the profile of entry" in found.form.preprocessing
    assert found.form.accounting.covers_preprocessing is False
    renamed = tmp_path / f"renamed.{suffix}"
    shutil.copy(path, renamed)
    if suffix == "csv":
        shutil.copy(mark_beside(path), mark_beside(renamed))
    assert learn_start(home, JobRequest("a", epsilon="0.01"), renamed, "me")


def test_synthetic_rows_of_nobody_knows_what_are_refused(story, tmp_path):
    home, asked = story.home, JobRequest("a", epsilon="0.01")
    marked, bare = tmp_path / "a.synthetic.csv", tmp_path / "b.synthetic.csv"
    from_profile(home, story.profile, marked, 400, 1, "a")
    shutil.copy(marked, bare)
    with pytest.raises(InputError, match="no profile that it names"):
        learn_start(home, asked, bare, "me")
    body = json.loads(mark_beside(marked).read_text())
    body["dpserve.synthetic"]["origin"] = "dpserve/elsewhere"
    mark_beside(marked).write_text(json.dumps(body))
    with pytest.raises(InputError, match="of synthetic rows of the ledger dpserve/elsewhere"):
        learn_start(home, asked, marked, "me")


def envelope(story: Story, model: str, version: int = 1) -> dict:
    return json.loads((story.home.models / model / str(version) / "model.onnx.dsse.json").read_bytes())


def test_charges_elsewhere_take_all_of_it_and_each_release_once(story, tmp_path):
    """Charging third alone leaves what charging first, second and third leaves; nothing of it can be charged again."""
    key = story.home.trust.to_json().decode()

    def charged(home: Home, model: str, version: int = 1) -> dict:
        asked = ChargeRequest(mechanism=model, why="same people", statement=envelope(story, model, version), key=key)
        return decisions.charge(home, "d", asked, "me")["budget"]["spent"]

    homes = []
    for name in ("one", "two"):
        home = Home.init(ledgers.place(tmp_path / name))
        register(
            home, "d", rows(tmp_path / "d.parquet", 0), story.folder / "s.yaml", Budget.of("30", "0.00001"),
            Relation.ADD_REMOVE, "record",
        )  # fmt: skip
        homes.append(home)
    one, two = homes
    at_once = charged(one, "third")
    alone = charged(two, "first")
    assert Decimal(at_once["epsilon"]) > Decimal(alone["epsilon"]) > 5
    charged(two, "second")
    at_last = charged(two, "third")  # three charges, of which none has a pure figure
    assert at_last | {"unbounded": 1} == at_once
    for home in homes:
        for model in ("first", "second", "third"):
            with pytest.raises(NameTaken, match="was charged before"):
                charged(home, model)
        assert audit_home(home).ok
    value = one.ledger.log.entry(one.ledger.log.size() - 1).value
    assert [line["reservation"] for line in value["releases"]] == [
        story.certificate(name).reservation for name in ("third", "first", "second")
    ]


def test_an_edited_model_is_its_ancestor_as_a_start_and_as_a_charge(story, tmp_path):
    home, base = story.home, open_model(story.home, "second@1")
    after = editing.set_value(
        editing.to_additive(base.ensemble), "town", "a, b", 0.5, editing.EditNote("ann", "a review")
    )
    derive(home, base, after, False)
    edited = story.certificate("second@2")
    assert edited.headline == base.certificate.headline
    story.train("a", "fifth", "0.01", "second@2")
    fifth = story.certificate("fifth")
    assert [source.entry for source in fifth.form.dataset.made_from or ()] == [
        story.certificate("first").issued, edited.issued,
    ]  # fmt: skip
    assert fifth.headline[0] == edited.headline[0] + fifth.epsilon
    other, key = Home.init(ledgers.place(tmp_path / "other")), home.trust.to_json().decode()
    register(
        other, "d", rows(tmp_path / "d.parquet", 0), story.folder / "s.yaml", Budget.of("30", "0.00001"),
        Relation.ADD_REMOVE, "record",
    )  # fmt: skip
    asked = [
        ChargeRequest(mechanism="m", why="same people", statement=envelope(story, "second", version), key=key)
        for version in (1, 2)
    ]
    decisions.charge(other, "d", asked[0], "me")
    with pytest.raises(NameTaken, match="was charged before, as entry"):
        decisions.charge(other, "d", asked[1], "me")
    assert audit_home(home, ledgers.bundles(home.path)).ok


def test_the_auditor_finds_a_certificate_and_an_entry_that_leave_a_release_out(story, monkeypatch):
    home = story.home
    bodies = [json.loads(home.ledger.log.entry(at).body) for at in range(home.ledger.log.size())]
    begun = next(at for at, body in enumerate(bodies) if body.get("model") == "third" and "made_from" in body)
    named = bodies[begun]["made_from"]
    assert len(named) == 2
    lies = ([], named[:1], named[1:], named[::-1], [*named, named[0]], [begun - 1], [*named, 10**9])
    for lie in (*lies, named):
        replay = Replay(home.trust)
        for at in range(begun):
            replay.read(at, canonical.encode(bodies[at]))
        changed = canonical.encode(bodies[begun] | {"made_from": lie})
        if lie == named:
            replay.read(begun, changed)
        else:
            with pytest.raises(LedgerInvalid, match="made_from"):
                replay.read(begun, changed)
    stripped = {key: part for key, part in bodies[begun].items() if key != "made_from"}
    replay = Replay(home.trust)
    for at in range(begun):
        replay.read(at, canonical.encode(bodies[at]))
    with pytest.raises(LedgerInvalid, match="leaves out job"):
        replay.read(begun, canonical.encode(stripped))

    monkeypatch.setattr("accountant.certificates.statement.made_from_to_json", lambda _: {})
    story.train("a", "silent", "0.01", "first@1")
    monkeypatch.undo()
    payload = json.loads(base64.b64decode(envelope(story, "silent")["payload"]))
    assert "madeFrom" not in payload["predicate"]["dataset"]
    problems = audit_home(home, ledgers.bundles(home.path)).problems
    assert [problem for problem in problems if "names other releases than entry" in problem]
    shutil.rmtree(home.models / "silent")
