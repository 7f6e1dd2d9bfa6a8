"""A campaign in turns in one process: every owner answers once, in its turn; certified, audited; refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import owners
import pytest

from accountant.audit.audit import audit_home
from accountant.certificates.deployments import to_yaml
from accountant.errors import JobFailed, WrongState
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from dpserve_verify.audit.replay import Replay
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import CertificateInvalid, InputError, LedgerInvalid
from dpserve_verify.formats.canonical import decode
from local.campaign import campaigns
from local.campaign.asking import verify_offer, verify_turn
from local.campaign.questions import question_from_payload
from local.reports.directions import directions
from local.turns import turns
from local.turns.lines import plain_coordinates
from local.turns.so_far import read_so_far
from local.turns.turns import document_after
from models.features.features import NumericFeature
from models.onnx.runtime import OnnxModel
from models.store.bundle import ModelStore
from models.store.loading import load_verified
from serving.pages.parts.entry_text import describe
from training.finish.release import lock_job
from training.kinds.training_steps import TrainingSteps

OWNERS, ROUNDS = 1200, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("turns")


@pytest.fixture(scope="module")
def home(folder):
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    (folder / "schema.yaml").write_text(owners.SCHEMA)
    campaigns.found_population(home, "folk", folder / "schema.yaml", OWNERS, "40", None)
    return home


@pytest.fixture(scope="module")
def closed(home, folder):
    """Three turns: two of all their owners, which end by themselves; one of half, which the close ends."""
    owners.asking(folder, home, OWNERS, 900, learner="local-stump", rounds=str(ROUNDS), epsilon="4")
    everybody = owners.people(OWNERS)
    assert owners.answer_turn(home, "survey", everybody) == 1
    assert owners.answer_turn(home, "survey", everybody) == 2
    state = campaigns.state(home, "survey")
    assert (state["turn"], state["turns"], state["turn_reports"], state["reports"]) == (3, ROUNDS, 0, 800)
    assert owners.answer_turn(home, "survey", everybody, 330) == 3
    return campaigns.close(home, "survey")


def test_model_is_what_the_last_turn_published_and_good(closed, home):
    assert (closed["state"], closed["reports"], closed["turn_reports"]) == ("issued", 1130, 330)
    loaded = load_verified(ModelStore(home.models).resolve("survey"), home.trust)
    assert loaded.certificate.claim["trustModel"].startswith("local:")
    assert loaded.certificate.claim["epsilon"] == "4"
    public = loaded.certificate.form.public.hyperparameters
    assert (public["rounds"], public["turns"], public["definition"]) == (ROUNDS, ROUNDS, closed["definition"])
    test = owners.people(4000, 5)
    assert np.mean(loaded.ensemble.predict(test) == test["answer"]) > 0.68  # .80 without noise
    document = document_after(campaigns.folder_of(home, "survey"), ROUNDS)
    votes = read_so_far(document, loaded.ensemble.features)
    codes = [f.encode(test[f.name]) for f in loaded.ensemble.features]
    margins = votes.margins(loaded.ensemble.features, codes)
    assert ((margins[:, 0] > 0) == (loaded.ensemble.predict(test) == "yes")).all()
    assert len(loaded.ensemble.vote_table()) > 1


def test_each_owner_has_one_turn_and_no_other(home, folder):
    owners.asking(folder, home, 8, 8, "small", learner="local-stump", rounds="2", epsilon="1")
    definition = campaigns.load(home, "small").definition
    assert [definition.turn_of(owner) for owner in range(8)] == [1, 2] * 4
    assert [definition.asked_in(turn) for turn in (1, 2)] == [4, 4]
    send = lambda owner, value=1: campaigns.receive(home, "small", campaigns.invitation(home, "small", owner), value)  # noqa: E731
    with pytest.raises(WrongState, match="at turn 1"):
        send(1)
    with pytest.raises(WrongState, match="0 owners have answered in turn 1, and it needs 4"):
        campaigns.end_turn(home, "small")
    for owner in (0, 2, 4, 6):
        send(owner)
    assert send(0) == {"campaign": "small", "owner": 0, "report": 1}  # the same again, though its turn is over
    assert campaigns.state(home, "small")["turn"] == 2
    for owner in (1, 3, 5, 7):
        send(owner)
    with pytest.raises(WrongState, match="all its 2 turns are over"):
        campaigns.end_turn(home, "small")
    with pytest.raises(InputError, match="rounds=9"):
        owners.asking(folder, home, 8, 8, "wide", learner="local-stump", rounds="9", epsilon="1")
    with pytest.raises(InputError, match="rounds: local-linear"):
        owners.asking(folder, home, 8, 8, "wide", rounds="2", epsilon="1")


def test_owner_goes_by_what_the_log_says_the_turn_before_has_left(home, folder):
    owners.asking(folder, home, 600, 300, "shown", learner="local-stump", rounds="2", epsilon="1")
    offer, trust = campaigns.offer(home, "shown"), home.trust
    definition = verify_offer(offer, trust, "shown").definition
    assert verify_turn(offer, trust, definition, 0) == b""
    with pytest.raises(WrongState, match="is at turn 1 of 2, and yours is 2"):
        verify_turn(offer, trust, definition, 1)
    owners.answer_turn(home, "shown", owners.people(600), 200)
    campaigns.end_turn(home, "shown")
    later = campaigns.offer(home, "shown")
    document = verify_turn(later, trust, definition, 1)
    assert len(read_so_far(document, definition.features).voters) in (1, 2)
    survey = campaigns.offer(home, "survey") if (home.path / "campaigns/survey").exists() else offer
    forged = later["ensemble"].replace('"votes":[[', '"votes":[["above",0,1,1024],[')
    lies = (
        {"ensemble": forged},
        {"ensemble": None},
        {"ensemble_proof": None},
        {"ensemble_proof": later["proof"]},  # of the opening
        {"ensemble_proof": survey["ensemble_proof"], "ensemble": survey["ensemble"]},
    )
    for lie in lies:
        with pytest.raises(CertificateInvalid):
            verify_turn({**later, **lie}, trust, definition, 1)
    for text in (b"{}", b"[", document.replace(b'"voting"', b'"trees"'), document.replace(b'"a"', b'"b"')):
        with pytest.raises(InputError):
            read_so_far(text, definition.features)


def test_definition_is_strict(home, closed):
    definition = campaigns.load(home, "survey").definition
    assert question_from_payload(definition.payload) == definition
    for change in ({"rounds": 0}, {"rounds": OWNERS + 1}, {"seed": "0"}, {"classes": ("a",)}):
        with pytest.raises(InputError):
            replace(definition, **change)
    tests = definition.basis.tests
    for wrong in (
        (),
        (*tests, tests[0]),
        (("above", 9, 0),),
        (("above", 0, 99),),
        (("over", 0, 0),),
        (("is", "0", 0),),
    ):
        with pytest.raises(InputError):
            replace(definition, basis=replace(definition.basis, tests=wrong))


@pytest.fixture(scope="module")
def lines(home, folder):
    """Nearest centroids, in two rounds of two turns each; closed before anybody has weighed the second line."""
    owners.asking(folder, home, OWNERS, 700, "lines", learner="local-ncc", rounds="2", epsilon="3")
    everybody = owners.people(OWNERS)
    definition = campaigns.load(home, "lines").definition
    assert [definition.asked_in(turn) for turn in (1, 2, 3, 4)] == [525, 75, 525, 75]
    assert [definition.last_settled(turn) for turn in (1, 2, 3, 4)] == [0, 2, 2, 4]
    for turn in (1, 2, 3):
        assert owners.answer_turn(home, "lines", everybody) == turn
    return campaigns.close(home, "lines")


@pytest.mark.slow
def test_lines_are_weighed_by_other_owners_and_released_once_they_are(home, lines):
    assert (lines["state"], lines["turns"], lines["reports"]) == ("issued", 4, 1125)
    folder = campaigns.folder_of(home, "lines")
    features = campaigns.load(home, "lines").definition.features
    published = [read_so_far(document_after(folder, turn), features) for turn in (1, 2, 3)]
    assert [len(each.voters) for each in published] == [1, 1, 2]
    assert published[0].voters[0].weight == 1 < published[1].voters[0].weight
    place = ModelStore(home.models).resolve("lines")
    loaded = load_verified(place, home.trust)
    assert loaded.ensemble.lines == published[1].voters  # and not the third turn's, of which no alpha is known
    test = owners.people(4000, 5)
    labels, _ = OnnxModel((place / "model.onnx").read_bytes()).predict(test)
    assert labels.tolist() == loaded.ensemble.predict(test).tolist()
    assert np.mean(labels == test["answer"]) > 0.75  # .93 without noise
    assert set(loaded.ensemble.importances()) == {"a", "b", "c"}
    assert loaded.certificate.form.public.hyperparameters["turns"] == 4
    assert "who sees reports and no row" in to_yaml(loaded.certificate)
    assert f"({OWNERS} owners)" in to_text(plain(loaded.certificate))


def test_who_weighs_answers_by_one_bit(home, folder):
    owners.asking(folder, home, 16, 2, "bit", learner="local-ncc", rounds="2", epsilon="1")
    definition = campaigns.load(home, "bit").definition
    assert [definition.turn_of(owner) for owner in (0, 6, 7, 8, 14, 15)] == [1, 1, 2, 3, 3, 4]
    with pytest.raises(InputError, match="from 0 to 1"):
        campaigns.receive(home, "bit", campaigns.invitation(home, "bit", 7), 2)
    with pytest.raises(InputError, match="from 0 to 63"):
        campaigns.receive(home, "bit", campaigns.invitation(home, "bit", 0), 64)
    campaigns.receive(home, "bit", campaigns.invitation(home, "bit", 0), 5)
    campaigns.end_turn(home, "bit")
    campaigns.receive(home, "bit", campaigns.invitation(home, "bit", 7), 0)  # the only one: it is wrong
    with pytest.raises(JobFailed, match="no turn has found a vote"):
        campaigns.close(home, "bit")
    with pytest.raises(InputError, match="rounds=3"):
        owners.asking(folder, home, 16, 2, "wide", learner="local-ncc", rounds="3", epsilon="1")


def test_definition_of_lines_is_strict(home, lines):
    definition = campaigns.load(home, "lines").definition
    assert question_from_payload(definition.payload) == definition
    for change in ({"own": "regression"}, {"own": "x"}, {"radius": 0}):
        with pytest.raises(InputError):
            replace(definition, basis=replace(definition.basis, **change))
    wide = NumericFeature("a", tuple(np.linspace(-3, 3, 60_000)))
    basis = replace(definition.basis, coordinates=plain_coordinates((wide,)))
    with pytest.raises(InputError, match="so many codes"):
        replace(definition, features=(wide,), rounds=4, basis=basis)


def test_a_turn_that_is_cut_ends_when_it_is_ended_again(home, folder, monkeypatch):
    owners.asking(folder, home, 40, 20, "cut", learner="local-stump", rounds="2", epsilon="1")
    definition = campaigns.load(home, "cut").definition
    seed, dimension = bytes.fromhex(definition.seed), definition.dimension

    def agree(numbers: range) -> None:
        """Of its vectors each owner reports the one that speaks for the first test most: an edge beyond all noise."""
        for number in numbers:
            value = int(directions(seed, np.array([number]), definition.candidates, dimension)[0, :, 1].argmax())
            campaigns.receive(home, "cut", campaigns.invitation(home, "cut", number), value)

    agree(range(0, 30, 2))

    def cut(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    for step in ("next_document", "replace_file"):
        with monkeypatch.context() as patch:
            patch.setattr(turns, step, cut)
            with pytest.raises(KeyboardInterrupt):
                campaigns.end_turn(home, "cut")
        assert campaigns.state(home, "cut")["turn"] == 1
        with pytest.raises(WrongState):  # its reports are settled
            campaigns.receive(home, "cut", campaigns.invitation(home, "cut", 38), 3)
    with lock_job(home, "campaign-cut"):  # somebody is at it: nobody waits
        assert campaigns.offer(home, "cut")["turn"] == 1
    assert campaigns.offer(home, "cut")["turn"] == 2  # the next owner who asks ends it
    agree(range(1, 11, 2))
    with monkeypatch.context() as patch:
        patch.setattr(TrainingSteps, "finish", cut)
        with pytest.raises(KeyboardInterrupt):
            campaigns.close(home, "cut")
    assert campaigns.close(home, "cut")["state"] == "issued"


def test_nothing_learnt_is_no_model_and_stays_charged(home, folder):
    owners.asking(folder, home, 8, 8, "noise", learner="local-stump", rounds="1", epsilon="0.1")
    definition = campaigns.load(home, "noise").definition
    dimension = definition.dimension
    vectors = directions(bytes.fromhex(definition.seed), np.arange(8), definition.candidates, dimension)
    total = np.zeros(dimension)
    for owner in range(8):  # whose reports take each other back: no edge is beyond one standard deviation of the noise
        value = int(np.linalg.norm(total + vectors[owner], axis=1).argmin())
        total += vectors[owner, value]
        campaigns.receive(home, "noise", campaigns.invitation(home, "noise", owner), value)
    document = document_after(campaigns.folder_of(home, "noise"), 1)
    assert read_so_far(document, definition.features).voters == ()
    with pytest.raises(JobFailed, match="no turn has found a vote"):
        campaigns.close(home, "noise")
    assert campaigns.state(home, "noise")["state"] == "burned"


def test_given_up_is_charged_and_takes_no_more(home, folder, closed):
    owners.asking(folder, home, 8, 2, "stuck", epsilon="0.1")
    campaigns.receive(home, "stuck", campaigns.invitation(home, "stuck", 0), 3)
    before = describe_budget(home.ledger.dataset("folk"))["spent"]["epsilon"]
    with pytest.raises(InputError, match="reason"):
        campaigns.give_up(home, "stuck", "me", "")
    assert campaigns.give_up(home, "stuck", "me", "nobody comes")["state"] == "burned"
    assert describe_budget(home.ledger.dataset("folk"))["spent"]["epsilon"] == before
    with pytest.raises(WrongState):
        campaigns.receive(home, "stuck", campaigns.invitation(home, "stuck", 1), 3)
    for name in ("stuck", "survey"):
        with pytest.raises(WrongState, match="cannot be given up"):
            campaigns.give_up(home, name, "me", "again")
    with pytest.raises(WrongState, match="has no turns"):
        campaigns.end_turn(home, "stuck")


def test_an_auditor_follows_the_turns_and_believes_nobody(home, closed):
    assert audit_home(home).ok
    entries = list(home.ledger.log.entries(0, 1000))
    job = closed["job"]
    bodies = [entry.body for entry in entries if entry.seq <= closed["issued"]]
    words = [describe(entry).words for entry in entries if entry.value["type"] == "campaign-round"]
    assert "Turn 1 of the campaign" in words[0]

    def judge(change) -> None:
        replay = Replay(home.trust)
        for seq, body in enumerate(bodies):
            value = decode(body)
            if value.get("reservation") == job or seq == job:
                change(value)
            replay.read(seq, json.dumps(value, sort_keys=True, separators=(",", ":")).encode())

    judge(lambda value: None)
    lies = [("campaign-round", name, lie) for name, lie in (
        ("round", 9), ("round", "1"), ("reports", 0), ("reports", OWNERS), ("ensemble", "x"), ("definition", "0" * 64),
        ("ensemble", "0" * 64),  # then the model is none that was shown
    )]  # fmt: skip
    lies += [("campaign-closed", "reports", 1000), ("committed", "released", "0" * 64)]
    for kind, name, lie in lies:
        with pytest.raises(LedgerInvalid):
            judge(lambda value, kind=kind, name=name, lie=lie: value["type"] == kind and value.update({name: lie}))
