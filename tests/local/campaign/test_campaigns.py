"""A campaign among owners in one process: asked, answered, closed, certified, audited; and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import owners
import pytest

from accountant.audit.audit import audit_home
from accountant.certificates.deployments import to_yaml
from accountant.errors import IdempotencyConflict, JobFailed, NameTaken, NotInvited, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from dpserve_verify.audit.replay import Replay
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, InputError, LedgerInvalid
from dpserve_verify.formats.canonical import decode
from dpserve_verify.privacy.budget import Budget, Relation
from local.campaign import campaign_kinds, campaigns
from local.campaign.defining import CampaignRequest
from local.campaign.questions import question_from_payload
from models.store.bundle import ModelStore
from models.store.loading import load_verified
from serving.pages.parts.entry_text import describe
from training.datasets.datasets import register
from training.jobs import job
from training.kinds.training_steps import TrainingSteps
from training.measuring.worth import evaluate
from training.planning import plans
from training.requests import JobRequest

OWNERS = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("campaigns")


@pytest.fixture(scope="module")
def home(folder):
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    owners.asking(folder, home, OWNERS)
    return home


@pytest.fixture(scope="module")
def closed(home):
    """Every owner answered, and the campaign was closed."""
    definition = campaigns.load(home, "survey").definition
    found = owners.reports(definition, owners.people(OWNERS))
    for invitation, value in zip(campaigns.invitations(home, "survey"), found, strict=True):
        campaigns.receive(home, "survey", invitation, int(value))
    return campaigns.close(home, "survey")


def test_what_is_refused_while_it_is_open(home, folder):
    owners.asking(folder, home, OWNERS, None, "early", epsilon="1")
    invitation = campaigns.invitation(home, "early", 3)
    for stranger in ("", "dpi_3_", invitation[:-1] + "x", invitation.replace("_3_", "_4_"), f"dpi_{OWNERS}_{'0' * 40}"):
        with pytest.raises(NotInvited):
            campaigns.receive(home, "early", stranger, 1)
    with pytest.raises(NotInvited):  # of another campaign
        campaigns.receive(home, "early", campaigns.invitation(home, "other", 3), 1)
    for value in (-1, 64, 2**62):
        with pytest.raises(InputError, match="report="):
            campaigns.receive(home, "early", invitation, value)
    with pytest.raises(UnknownName):
        campaigns.state(home, "nobody")
    with pytest.raises(NameTaken):
        owners.asking(folder, home, OWNERS)
    assert campaigns.state(home, "early")["reports"] == 0
    job.recover(home)
    assert campaigns.state(home, "early")["state"] == "open"  # it waits for owners, not for a process


def test_definition_is_strict(home):
    payload = campaigns.load(home, "survey").definition.payload
    assert question_from_payload(payload).payload == payload
    for change in (b'"favoured":', b'"seed":"'):
        with pytest.raises(CertificateInvalid):
            question_from_payload(payload.replace(change, change + b"0"))
    with pytest.raises(CertificateInvalid):
        question_from_payload(payload + b" ")
    with pytest.raises(InputError):
        replace(question_from_payload(payload), least=OWNERS + 1)


@pytest.mark.slow
def test_model_is_certified_as_local_and_good(closed, home):
    assert (closed["state"], closed["reports"]) == ("issued", OWNERS)
    loaded = load_verified(ModelStore(home.models).resolve("survey"), home.trust)
    claim, public = loaded.certificate.claim, loaded.certificate.form.public
    assert claim["trustModel"].startswith("local:")
    assert claim["unit"]["name"] == "owner"
    assert (claim["epsilon"], claim["delta"], claim["relation"]) == ("2", "0", "replace-one")
    assert public.hyperparameters["definition"] == closed["definition"]
    assert public.hyperparameters["public_rows"] == closed["public_rows"]
    assert any("lie" in line for line in loaded.certificate.form.not_covered)
    test = owners.people(4000, 5)
    assert np.mean(loaded.ensemble.predict(test) == test["answer"]) > 0.75  # 0.94 without noise
    was = campaigns.load(home, "survey").reports.all()[1][0]
    with pytest.raises(IdempotencyConflict):
        campaigns.receive(home, "survey", campaigns.invitation(home, "survey", 0), int(was + 1) % 64)
    assert campaigns.close(home, "survey") == closed  # again: nothing changes


def test_too_few_reports_make_no_model_and_stay_charged(home, folder, closed):
    spent = lambda: Decimal(describe_budget(home.ledger.dataset("folk"))["spent"]["epsilon"])  # noqa: E731
    before = spent()
    owners.asking(folder, home, OWNERS, 2, "quiet")
    campaigns.receive(home, "quiet", campaigns.invitation(home, "quiet", 7), 5)
    with pytest.raises(JobFailed, match="1 reports, fewer than the 2"):
        campaigns.close(home, "quiet")
    assert campaigns.state(home, "quiet")["state"] == "burned"
    with pytest.raises(WrongState):
        campaigns.receive(home, "quiet", campaigns.invitation(home, "quiet", 8), 5)
    assert spent() == before + 2  # or reserved, where it was opened
    with pytest.raises(BudgetRefused):
        owners.asking(folder, home, OWNERS, None, "greedy", epsilon="6.5")


def test_a_close_that_is_cut_goes_on_from_where_it_was(home, folder, closed, monkeypatch):
    owners.asking(folder, home, OWNERS, 2, "cut", epsilon="1")
    for number in (1, 2):
        campaigns.receive(home, "cut", campaigns.invitation(home, "cut", number), number)

    def cut(*given: object) -> None:
        raise KeyboardInterrupt

    for module, step in ((campaign_kinds, "learn_from_reports"), (TrainingSteps, "keep"), (TrainingSteps, "finish")):
        with monkeypatch.context() as patch:
            patch.setattr(module, step, cut)
            with pytest.raises(KeyboardInterrupt):
                campaigns.close(home, "cut")
        with pytest.raises(WrongState):
            campaigns.receive(home, "cut", campaigns.invitation(home, "cut", 3), 3)
    job.recover(home)
    done = campaigns.close(home, "cut")
    assert (done["state"], done["reports"]) == ("issued", 2)
    loaded = load_verified(ModelStore(home.models).resolve("cut"), home.trust)
    registry = to_yaml(loaded.certificate)
    assert "model_name: Local\n" in registry
    assert "who sees reports and no row" in registry
    assert "trusted with them" not in registry
    assert "(400 owners)" in to_text(plain(loaded.certificate))


def test_owners_rows_are_for_campaigns_alone(home, folder, closed):
    with pytest.raises(InputError, match="campaign"):
        job.submit(home, JobRequest("folk", "lazybb", "1"), by="me")
    labelled = owners.write(folder / "labelled.csv", owners.people(50))
    asked = CampaignRequest("third", "folk", "local-linear", "1", 5, labelled)
    with pytest.raises(InputError, match="without labels"):
        campaigns.open_campaign(home, asked, "me")
    same = {key: value[[0] * 5] for key, value in owners.people(2, 1).items() if key != "answer"}
    alike = replace(asked, public_rows=owners.write(folder / "alike.csv", same))
    for wrong in (replace(alike, learner="lazybb"), replace(alike, owners=OWNERS + 1), alike):
        with pytest.raises(InputError):
            campaigns.open_campaign(home, wrong, "me")


def test_a_dataset_may_stand_beside_a_population(home, folder, closed):
    data = owners.write(folder / "rows.csv", owners.people(10, 3))
    arguments = (home, "table", data, folder / "schema.yaml", Budget.of("1", "0"), Relation.REPLACE_ONE, "record")
    assert register(*arguments).registration.name == "table"
    assert plans.jobs_left(home, home.ledger.dataset("folk")) == {}


def test_ledger_is_sound_and_an_auditor_believes_nobody(home, closed):
    assert audit_home(home).ok
    bodies = [entry.body for entry in home.ledger.log.entries(0, 100)]

    def judge(change) -> None:
        replay = Replay(home.trust)
        for seq, body in enumerate(bodies):
            value = decode(body)
            change(value)
            replay.read(seq, json.dumps(value, sort_keys=True, separators=(",", ":")).encode())

    judge(lambda value: None)
    said = [
        describe(entry).words for entry in home.ledger.log.entries(0, 100) if entry.value["type"].startswith("camp")
    ]
    assert any(closed["definition"] in each for each in said)
    assert any(f"{OWNERS} owners had answered" in each for each in said)
    lies = {
        "campaign-opened": {"definition": "0" * 64, "reservation": 0},
        "campaign-closed": {"definition": "0" * 64, "reports": OWNERS + 1},
        "committed": {"released": "x"},
    }
    for kind, fields in lies.items():
        for name, lie in fields.items():
            with pytest.raises(LedgerInvalid):
                judge(lambda value, kind=kind, name=name, lie=lie: value["type"] == kind and value.update({name: lie}))
    with pytest.raises(LedgerInvalid, match="a model needs"):
        judge(lambda value: value["type"] == "campaign-closed" and value.update(reports=OWNERS - 1))


def test_nothing_but_reports_is_ever_reserved_of_owners(home, closed):
    """Whatever door it comes by: an evaluation of rows that are not here would make the ledger unsound."""
    size = home.ledger.log.size()
    asked = evaluate.EvaluationRequest("survey", "folk", "0.1", part="training")
    with pytest.raises(InputError, match="its rows stay with their owners"):
        job.submit(home, asked, by="me")
    assert home.ledger.log.size() == size
