"""Two aggregators over real HTTPS: sums of shares with the noise of both, answered once, whatever kills them."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import aggregator_crash
import numpy as np
import owner_crash
import owners
import pytest
import sharing
from https import served
from in_process import Site
from pages import part
from small_home import ROOT, dpserve

from accountant.audit.audit import audit_home
from accountant.certificates.deployments import to_yaml
from accountant.errors import IdempotencyConflict, NotInvited, WrongState
from accountant.home import Home
from accountant.ledger.families.records import request_from_entry
from dpserve_verify.audit.replay import Replay
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import (
    BudgetRefused,
    CertificateInvalid,
    InputError,
    KeyInvalid,
    LedgerInvalid,
    LedgerUnavailable,
)
from dpserve_verify.formats.canonical import decode
from local.aggregator import program
from local.aggregator.settings import create_folder, read_settings
from local.aggregator.store import AggregatorStore
from local.campaign import campaigns, shared_campaigns
from local.campaign.asking import Refused
from local.campaign.defining import CampaignRequest, read_aggregator
from local.doors import aggregators
from local.doors import campaigns as doors
from local.owner import program as owner_program
from local.owner.own_ledger import OwnLedger
from local.owner.settings import read_settings as read_owner
from local.reports.sums import DIGEST, HELD, SUM, NoisySum, digest_payload, held_payload, sum_payload
from models.onnx.runtime import OnnxModel
from models.store.bundle import ModelStore
from models.store.loading import load_verified
from training.jobs import job
from training.requests import JobRequest

OWNERS, ROWS = 160, 12
LEAST = 0.6  # accuracy; half by chance. Of 4,000 draws of the noise .809 +- .023, at least .717
LEAST_OF_THREE = 0.45  # accuracy; a third by chance. Of 300 draws of the noise .758 +- .024, at least .67
TOML = """\
url = "{url}"
trust = "{trust}"
rows = "rows.csv"
ledger = "owner.db"
ca = "{ca}"
pace_seconds = 0.05

[question]
target = "answer"
classes = ["no", "yes"]
features = ["a", "b", "c"]

[policy]
total_epsilon = "6"
largest_epsilon = "4"
total_delta = "0.0001"
largest_delta = "0.00001"
aggregators = ["{one}"]
"""


class Place:
    """A home that asks, over HTTPS, and two aggregators."""

    def __init__(self, folder: Path, site: Site, url: str, ca: Path) -> None:
        self.folder, self.home, self.url, self.ca, self.site = folder, site.home, url, ca, site
        self.whom = sharing.aggregators(folder, self.home, url, ca)

    def owner(self, number: int, rows: int = 1, toml: str = TOML) -> Path:
        own = self.folder / f"owner-{number}"
        own.mkdir(exist_ok=True)
        owners.write(own / "rows.csv", owners.people(rows, number))
        one = json.loads((self.whom[0] / "aggregator.json").read_text())
        print_of = read_aggregator(self.whom[0] / "aggregator.json").fingerprint
        assert one["name"] == "first"
        text = toml.format(url=self.url, trust=self.home.path / "trust.json", ca=self.ca, one=print_of)
        (own / "owner.toml").write_text(text)
        return own / "owner.toml"

    def answer(self, name: str) -> list[object]:
        """Both at once, as they would."""
        found: list[object] = [None, None]

        def one(at: int) -> None:
            token = shared_campaigns.token_for(self.home, name, at)
            try:
                found[at] = program.answer(read_settings(self.whom[at]), name, token, 20)
            except Exception as error:  # the test looks at it
                found[at] = error

        both = [threading.Thread(target=one, args=(at,)) for at in (0, 1)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(home.path))
        site = Site(home, (*doors.DOORS, *aggregators.DOORS))
        with served(site, folder) as (url, ca):
            yield Place(folder, site, url, ca)


@pytest.fixture(scope="module")
def census(place):
    """A campaign that was answered by most owners, one of them by its own program, two to one aggregator alone."""
    definition = sharing.asking(place.folder, place.home, place.whom, OWNERS, 120, epsilon="4")
    people = owners.people(OWNERS * ROWS)
    for owner in range(1, OWNERS - 2):
        body = sharing.sealed(
            definition, owner, {name: column[owner * ROWS : (owner + 1) * ROWS] for name, column in people.items()}
        )
        sharing.send(place.home, definition, owner, body)
    size = definition.share_bytes
    for owner, lost in ((OWNERS - 2, 0), (OWNERS - 1, 1)):  # to one aggregator alone
        body = bytearray(sharing.sealed(definition, owner, owners.people(1)))
        body[lost * size : (lost + 1) * size] = bytes(size)
        sharing.send(place.home, definition, owner, bytes(body))
    settings = read_owner(place.owner(0))
    invitation = campaigns.invitation(place.home, "census", 0)
    line = owner_program.answer(settings, "census", invitation)
    again = owner_program.answer(settings, "census", invitation)
    assert (again.body, again.drawn) == (line.body, line.drawn)
    assert "two shares" in owner_program.words(line)
    assert owner_program.summarize(settings)["spent_delta"] == "0.00001"
    assert campaigns.close(place.home, "census")["state"] == "started"
    return definition, place.answer("census")


@pytest.mark.slow
def test_model_of_two_aggregators_is_certified_and_good(place, census):
    definition, found = census
    assert [line.owners for line in found] == [OWNERS - 2] * 2, found
    done = campaigns.close(place.home, "census")
    assert (done["state"], done["reports"]) == ("issued", OWNERS)
    assert all(each["opened"] and each["answered"] for each in done["aggregators"])
    loaded = load_verified(ModelStore(place.home.models).resolve("census"), place.home.trust)
    claim, form = loaded.certificate.claim, loaded.certificate.form
    assert claim["trustModel"].startswith("two-aggregators:")
    assert (claim["unit"]["name"], claim["relation"], claim["delta"]) == ("owner", "add-remove", "0.00001")
    assert form.public.hyperparameters["aggregator_1"] == definition.aggregators[0].fingerprint
    assert any("lie" in line for line in form.not_covered)
    assert "Who took part is public" in to_text(plain(loaded.certificate))
    assert "model_name: Two aggregators\n" in to_yaml(loaded.certificate)
    test = owners.people(4000, 5)
    assert np.mean(loaded.ensemble.predict(test) == test["answer"]) > LEAST
    assert audit_home(place.home).ok
    assert campaigns.close(place.home, "census") == done
    for folder in place.whom:
        assert not AggregatorStore(folder / "aggregator.db").owners(definition).any()  # shares are gone


@pytest.mark.slow
def test_shares_of_three_classes_are_a_model_with_a_score_for_each(place):
    """One owner's by its own program over HTTPS; the label's two numbers are within the same sensitivity."""
    more = {"schema": owners.schema(3), "population": "crowd3", "epsilon": "5"}
    definition = sharing.asking(place.folder, place.home, place.whom, OWNERS, 120, "three", **more)
    two = replace(definition, classes=("no", "yes"))
    assert (definition.layout.sensitivity, definition.noise_multiplier) == (
        two.layout.sensitivity,
        two.noise_multiplier,
    )
    assert definition.layout.numbers == two.layout.numbers + definition.layout.size
    people = owners.people(OWNERS * ROWS, 3, 3)
    for owner in range(1, OWNERS):
        mine = {name: column[owner * ROWS : (owner + 1) * ROWS] for name, column in people.items()}
        sharing.send(place.home, definition, owner, sharing.sealed(definition, owner, mine))
    settings = place.owner(0)
    owners.write(settings.parent / "rows.csv", owners.people(5, 1, 3))
    policy = settings.read_text().replace('"6"', '"20"').replace('"4"', '"5"')
    policy = policy.replace('["no", "yes"]', '["no", "yes", "maybe"]')
    settings.write_text(policy.replace('ledger = "owner.db"', 'ledger = "three.db"'))
    owner_program.answer(read_owner(settings), "three", campaigns.invitation(place.home, "three", 0))
    campaigns.close(place.home, "three")
    assert [line.owners for line in place.answer("three")] == [OWNERS] * 2
    assert campaigns.close(place.home, "three")["state"] == "issued"
    folder = ModelStore(place.home.models).resolve("three")
    loaded, test = load_verified(folder, place.home.trust), owners.people(4000, 5, 3)
    assert loaded.ensemble.classes == owners.LABELS
    labels, _ = OnnxModel((folder / "model.onnx").read_bytes()).predict(test)
    assert labels.tolist() == loaded.ensemble.predict(test).tolist()
    assert np.mean(labels == test["answer"]) > LEAST_OF_THREE
    assert audit_home(place.home).ok


@pytest.fixture(scope="module")
def crashes(place):
    """A small campaign for every step; what each aggregator's process was killed at, and what the platform got."""
    found = {}
    for step in aggregator_crash.STEPS:
        name = f"cut-{step}"
        definition = sharing.asking(place.folder, place.home, place.whom, 4, 2, name, epsilon="1")
        for owner in range(3):
            sharing.send(place.home, definition, owner, sharing.sealed(definition, owner, owners.people(1, owner)))
        campaigns.close(place.home, name)
        found[name] = definition
    return found


@pytest.mark.slow
@pytest.mark.parametrize("step", aggregator_crash.STEPS)
def test_killed_at_any_step_at_most_one_sum_leaves(place, crashes, step):
    name = f"cut-{step}"
    definition = crashes[name]
    first, second = (shared_campaigns.token_for(place.home, name, at) for at in (0, 1))
    script = [sys.executable, str(ROOT / "tests/helpers/aggregator_crash.py"), step, str(place.whom[0]), name, first]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/helpers'}"}
    other = threading.Thread(target=program.answer, args=(read_settings(place.whom[1]), name, second, 60))
    other.start()
    killed = subprocess.run(script, env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    stored = next(line for line in AggregatorStore(place.whom[0] / "aggregator.db").lines() if line.name == name)
    assert (stored.answer is not None) == (step in ("committed", "entered", "delivered"))
    assert (stored.charged is not None) == (stored.answer is not None)  # charged and drawn, or neither
    line = program.answer(read_settings(place.whom[0]), name, first, 60)
    other.join()
    if stored.answer is not None:
        assert line.answer == stored.answer
    if stored.held is not None:
        assert line.held == stored.held
    sent = campaigns.load(place.home, name).reports.said(SUM)[0]
    assert sent == line.answer == program.answer(read_settings(place.whom[0]), name, first, 1).answer
    assert line.owners == 3
    assert definition.digest == line.definition


@pytest.mark.slow
def test_owner_killed_at_any_step_sends_one_pair_of_shares(place, census):
    """The same steps as of a report: what is stored is what is sent, and is made once."""
    definition = sharing.asking(place.folder, place.home, place.whom, 20, 2, "owners-cut", epsilon="1")
    for number, step in enumerate(owner_crash.STEPS[1:], 4):
        toml, invitation = place.owner(number), campaigns.invitation(place.home, "owners-cut", number)
        script = [sys.executable, str(ROOT / "tests/helpers/owner_crash.py"), step, str(toml), "owners-cut", invitation]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/helpers'}"}
        killed = subprocess.run(script, env=environment, capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, (step, killed.stderr)
        ledger = OwnLedger(toml.parent / "owner.db")
        before = [line.body for line in ledger.lines()]
        assert len(before) == (step in ("committed", "delivered")), step
        line = owner_program.answer(read_owner(toml), "owners-cut", invitation)
        assert [each.body for each in ledger.lines()] == [line.body]
        assert before in ([], [line.body])
        assert dict(campaigns.load(place.home, "owners-cut").reports.after(number - 1, 1))[number] in line.body
    assert definition.share_bytes * 2 < len(line.body) < definition.share_bytes * 2 + 80


def test_what_owners_are_refused(place, census):
    definition, _ = census
    asked = sharing.asking(place.folder, place.home, place.whom, 9, 2, "strict", epsilon="1")
    invitation = campaigns.invitation(place.home, "strict", 3).encode()
    good = sharing.sealed(asked, 3, owners.people(1))
    take = lambda body: shared_campaigns.receive_shares(place.home, "strict", body)  # noqa: E731
    for body in (b"", invitation, invitation + b"\n", invitation + b"\n" + good[:-1], invitation + b"\n" + good + b"x",
                 invitation + b"\n" + good[: asked.share_bytes]):  # fmt: skip
        with pytest.raises((InputError, NotInvited)):
            take(body)
    for stranger in (b"dpi_3_" + b"0" * 40, campaigns.invitation(place.home, "census", 3).encode(), b"\xff\xfe"):
        with pytest.raises(NotInvited):
            take(stranger + b"\n" + good)
    take(invitation + b"\n" + good)
    take(invitation + b"\n" + good)
    with pytest.raises(IdempotencyConflict):
        take(invitation + b"\n" + sharing.sealed(asked, 3, owners.people(1)))
    with pytest.raises(InputError, match="shares"):
        campaigns.receive(place.home, "strict", invitation.decode(), 3)
    with pytest.raises((WrongState, IdempotencyConflict)):
        sharing.send(place.home, definition, 5, sharing.sealed(definition, 5, owners.people(1)))  # after the close
    with pytest.raises(BudgetRefused, match="delta"):
        owner_program.answer(read_owner(place.owner(70, toml=TOML.replace("0.00001\"\nagg", "0\"\nagg"))), "strict",
                             campaigns.invitation(place.home, "strict", 7))  # fmt: skip
    with pytest.raises(InputError, match="neither of the two"):
        owner_program.answer(read_owner(place.owner(71, toml=TOML.replace("{one}", "0" * 64))), "strict",
                             campaigns.invitation(place.home, "strict", 7))  # fmt: skip
    with pytest.raises(BudgetRefused, match="delta"):
        owner_program.answer(read_owner(place.owner(72, toml=TOML.replace("0.0001", "0.000001"))), "strict",
                             campaigns.invitation(place.home, "strict", 7))  # fmt: skip


@pytest.mark.slow
def test_what_aggregators_refuse_and_are_refused(place, census, tmp_path):
    _, answered = census
    asked = sharing.asking(place.folder, place.home, place.whom, 6, 2, "quiet", epsilon="1")
    token = shared_campaigns.token_for(place.home, "quiet", 0)
    settings = read_settings(place.whom[0])
    with pytest.raises(Refused, match="is open"):
        program.answer(settings, "quiet", token, 1)
    for owner in (0, 1):
        sharing.send(place.home, asked, owner, sharing.sealed(asked, owner, owners.people(1, owner)))
    campaigns.close(place.home, "quiet")
    for after in (-2, 6, 10**30):
        with pytest.raises(InputError, match="after"):
            shared_campaigns.collect(place.home, "quiet", token, after)
    with pytest.raises(Refused, match="token"):
        program.answer(settings, "quiet", "dpa_1_" + "0" * 40, 1)
    with pytest.raises(LedgerUnavailable, match="other aggregator"):  # the second is silent
        program.answer(settings, "quiet", token, 0.1)
    assert campaigns.close(place.home, "quiet")["state"] == "started"  # and nothing is learnt
    store = AggregatorStore(settings.ledger)
    with pytest.raises(WrongState, match="none is added"):  # after its word
        store.add(asked, [(4, b"\0" * 8)])
    with pytest.raises(BudgetRefused, match="noise"):
        replace(settings.policy, largest_epsilon=Decimal("0.5")).check(asked)
    with pytest.raises(InputError, match="wants at least"):
        replace(settings.policy, least_owners=3).check(asked)
    create_folder(tmp_path / "third", "third", place.url)
    with pytest.raises(InputError, match="two other"):
        program.place(read_settings(tmp_path / "third"), asked)
    with pytest.raises(InputError, match="of its own"):
        create_folder(tmp_path / "third", "third", place.url)
    say = lambda what, body, at=0: shared_campaigns.say(  # noqa: E731
        place.home, "quiet", what, shared_campaigns.token_for(place.home, "quiet", at).encode() + b"\n" + body
    )
    here = campaigns.load(place.home, "quiet").reports.said(HELD)[0]
    with pytest.raises(CertificateInvalid):  # the first's word from the second's mouth
        say(HELD, here, 1)
    with pytest.raises(CertificateInvalid):
        say(SUM, here)
    with pytest.raises(CertificateInvalid):  # of another campaign
        say(SUM, answered[0].answer)
    other = program.sign_payload(settings, held_payload(asked, 0, np.ones(6, bool)))
    with pytest.raises(IdempotencyConflict):  # another word than before
        say(HELD, other)
    nobody = program.sign_payload(read_settings(place.whom[1]), held_payload(asked, 1, np.zeros(6, bool)))
    say(HELD, nobody, 1)
    with pytest.raises(InputError, match="both hold shares of 0"):  # below what was declared: no sum is drawn
        program.answer(settings, "quiet", token, 1)
    assert store.begin(asked).charged is None


def test_sums_of_different_owners_are_no_model(place, census):
    """Two who do not keep to what they said: nothing is learnt."""
    asked = sharing.asking(place.folder, place.home, place.whom, 6, 2, "torn", epsilon="1")
    for owner in range(4):
        sharing.send(place.home, asked, owner, sharing.sealed(asked, owner, owners.people(1, owner)))
    campaigns.close(place.home, "torn")
    for at, mask in ((0, [1, 1, 1, 1, 0, 0]), (1, [1, 1, 1, 0, 0, 0])):
        share = NoisySum(np.array(mask, bool), np.zeros(asked.layout.numbers, np.uint64))
        settings, token = read_settings(place.whom[at]), shared_campaigns.token_for(place.home, "torn", at).encode()
        body = program.sign_payload(settings, sum_payload(asked, at, share))
        with pytest.raises(WrongState, match="digest"):  # which comes first
            shared_campaigns.say(place.home, "torn", SUM, token + b"\n" + body)
        word = program.sign_payload(settings, digest_payload(asked, at, body))
        shared_campaigns.say(place.home, "torn", DIGEST, token + b"\n" + word)
        other = program.sign_payload(settings, digest_payload(asked, at, body + b"x"))
        with pytest.raises(IdempotencyConflict):
            shared_campaigns.say(place.home, "torn", DIGEST, token + b"\n" + other)
        shared_campaigns.say(place.home, "torn", SUM, token + b"\n" + body)
    with pytest.raises(CertificateInvalid, match="different owners"):
        campaigns.close(place.home, "torn")


@pytest.fixture
def small(place, request):
    """A closed campaign of three owners, and a copy of the first aggregator's folder from before its answer."""
    name = f"restored-{len(campaigns.names(place.home))}"
    definition = sharing.asking(place.folder, place.home, place.whom, 4, 2, name, epsilon="1")
    for owner in range(3):
        sharing.send(place.home, definition, owner, sharing.sealed(definition, owner, owners.people(1, owner)))
    campaigns.close(place.home, name)
    copy = place.folder / f"backup-{name}"
    shutil.copytree(place.whom[0], copy)
    return name, definition, copy


@pytest.mark.slow
def test_an_aggregators_keys_take_a_passphrase(tmp_path, monkeypatch):
    """Every share is sealed to one of them. A folder that has none opens while the variable is not set."""
    plain = create_folder(tmp_path / "plain", "plain", "https://campaigns.example")
    monkeypatch.setenv("DPSERVE_AGGREGATOR_PASSPHRASE", "correct horse")
    public = create_folder(tmp_path / "a", "a", "https://campaigns.example")
    for name in ("seal.pem", "sign.pem"):
        assert (tmp_path / "a" / name).read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY")
    assert read_settings(tmp_path / "a").public("a") == public
    for folder, variable in (("plain", "correct horse"), ("a", None), ("a", "wrong"), ("a", "")):
        monkeypatch.delenv("DPSERVE_AGGREGATOR_PASSPHRASE")
        if variable is not None:
            monkeypatch.setenv("DPSERVE_AGGREGATOR_PASSPHRASE", variable)
        with pytest.raises(KeyInvalid, match="DPSERVE_AGGREGATOR_PASSPHRASE"):
            _ = read_settings(tmp_path / folder).seal
        monkeypatch.setenv("DPSERVE_AGGREGATOR_PASSPHRASE", "")
    monkeypatch.delenv("DPSERVE_AGGREGATOR_PASSPHRASE")
    assert read_settings(tmp_path / "plain").public("plain") == plain


def test_an_aggregator_that_was_restored_answers_no_second_time(place, small, monkeypatch):
    """From before its answer: the file alone, and the whole folder. Nothing is drawn that anybody sees."""
    name, definition, backup = small
    first, _ = place.answer(name)
    assert campaigns.load(place.home, name).reports.said(SUM)[0] == first.answer
    settings, token = read_settings(place.whom[0]), shared_campaigns.token_for(place.home, name, 0)
    newest = settings.ledger.read_bytes()

    shutil.copy(backup / "aggregator.db", settings.ledger)  # the note beside it is newer
    with pytest.raises(WrongState, match="restored from a backup"):
        program.answer(settings, name, token, 1)
    real, hiding = campaigns.offer, {"answer_proofs": []}
    hidden = lambda *given: {**real(*given), **hiding}  # noqa: E731
    monkeypatch.setattr(doors.campaigns, "offer", hidden)
    with pytest.raises(WrongState, match="restored from a backup"):  # though the platform hides its log's entries
        program.answer(settings, name, token, 1)
    monkeypatch.undo()

    whole = read_settings(backup)  # nothing here knows of an answer; the log does
    with pytest.raises(WrongState, match="restored from a backup"):
        program.answer(whole, name, token, 1)
    assert AggregatorStore(whole.ledger).begin(definition).charged is None
    monkeypatch.setattr(doors.campaigns, "offer", hidden)
    with pytest.raises(Refused, match="something else before"):  # hidden at first; the platform itself has but one
        program.answer(whole, name, token, 5)
    monkeypatch.setattr(shared_campaigns, "say", lambda *given: {"campaign": name, "other": heard(place, name)})
    with pytest.raises(LedgerInvalid, match="does not hold your answer"):  # what its log lacks is not sent
        program.answer(whole, name, token, 5)
    monkeypatch.undo()
    with pytest.raises(WrongState, match="restored from a backup"):  # a second digest beside the first is seen
        program.answer(whole, name, token, 1)

    settings.ledger.write_bytes(newest)
    assert program.answer(settings, name, token, 1).answer == first.answer
    assert campaigns.close(place.home, name)["state"] == "issued"
    assert audit_home(place.home).ok


def heard(place, name: str) -> str:
    return campaigns.load(place.home, name).reports.said(HELD)[1].decode()


@pytest.mark.slow
def test_shares_leave_no_byte_in_the_folder(place, small):
    """Neither in the table nor in what was written ahead of it, while another connection is open."""
    (name, definition, _), settings = small, read_settings(place.whom[0])
    token, second = (shared_campaigns.token_for(place.home, name, at) for at in (0, 1))
    other = threading.Thread(target=program.answer, args=(read_settings(place.whom[1]), name, second, 30))
    other.start()
    AggregatorStore(settings.ledger).lines()
    with closing(sqlite3.connect(settings.ledger)) as held:  # keeps SQLite from deleting its log at the end
        held.execute("SELECT count(*) FROM campaign").fetchall()
        real, kept = AggregatorStore.answer, []

        def answer(store, *given):
            with store._writing() as connection:
                here = (definition.digest if store._path == settings.ledger else "",)  # the other answers meanwhile
                kept.extend(connection.execute("SELECT share FROM share WHERE definition = ?", here).fetchall())
            return real(store, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AggregatorStore, "answer", answer)
            program.answer(settings, name, token, 30)
        other.join()
        assert len(kept) == 3
        files = b"".join(path.read_bytes() for path in settings.folder.glob("aggregator.db*") if path.is_file())
        assert not any(share[at : at + 64] in files for (share,) in kept for at in range(0, len(share), 512))


def test_auditor_believes_nobody_about_shares(place, census):
    """The entries of the campaign with one lie each: about the plan, the two, or how the population is asked."""
    definition, _ = census
    campaigns.close(place.home, "census")
    values = [decode(entry.body) for entry in place.home.ledger.log.entries(0, 1000)]
    about = [value.get("parameters", {}).get("definition") for value in values]
    at = about.index(definition.digest)
    population = next(seq for seq, value in enumerate(values) if value["type"] == "dataset-registered")

    def judge(changed: int = -1, *path: object, lie: object = None) -> None:
        replay = Replay(place.home.trust)
        for seq, value in enumerate(values):
            told = copy.deepcopy(value)
            if seq == changed:
                here = told
                for step in path[:-1]:
                    here = here[step]
                here[path[-1]] = lie
                if "request" in told:  # a liar who keeps the digests right
                    told["request"] = request_from_entry(told).digest
            replay.read(seq, json.dumps(told, sort_keys=True, separators=(",", ":")).encode())

    judge()
    second = values[at]["parameters"]["aggregator_2"]
    for path, lie, said in (
        (("parameters", "aggregator_1"), second, "must be two"),
        (("parameters", "least"), OWNERS + 1, "owners:"),
        (("plan", 0, "purpose"), "something else", "one sum of shares"),
        (("plan", 0, "mechanism"), "one-of-k", "its sensitivity is in replacement, not in l2"),
        (("plan", 0, "count"), 2, None),
        (("plan", 0, "event", "noise_multiplier"), "1", None),
    ):
        with pytest.raises(LedgerInvalid, match=said):
            judge(at, *path, lie=lie)
    answers = [seq for seq, value in enumerate(values) if value["type"] == "campaign-answered"]
    first, second = [seq for seq in answers if values[seq]["definition"] == definition.digest]
    for path, lie, said in (
        (("aggregator",), values[first]["aggregator"], "answered twice"), (("aggregator",), 3, "must be 1 or 2"),
        (("aggregator",), True, "must be 1 or 2"), (("answer",), "0", "answer"),
        (("definition",), "0" * 64, "reserved"),
    ):  # fmt: skip
        with pytest.raises(LedgerInvalid, match=said):
            judge(second, *path, lie=lie)
    with pytest.raises(LedgerInvalid, match="replace-one for reports"):
        judge(population, "relation", lie="replace-one")


def test_populations_of_reports_and_of_shares_are_apart(place, census, tmp_path):
    owners.asking(tmp_path, place.home, 5, name="none-of-shares")
    with pytest.raises(InputError, match="no aggregators"):
        shared_campaigns.collect(place.home, "none-of-shares", "dpa_1_", 0)
    for learner, population in (("local-linear", "crowd"), ("shared-additive", "folk")):
        asked = CampaignRequest("mixed", population, learner, "1", 4, None, 2, None, "0.00001",
                                tuple(each / "aggregator.json" for each in place.whom))  # fmt: skip
        with pytest.raises(InputError, match="is asked for"):
            campaigns.open_campaign(place.home, asked, "me")
    size = place.home.ledger.log.size()
    for change in ({"aggregators": asked.aggregators[:1]}, {"aggregators": asked.aggregators[:1] * 2}, {"delta": "0"},
                   {"delta": "0.001"}, {"groups": 1}, {"public_rows": tmp_path / "public.csv"}):  # fmt: skip
        with pytest.raises(InputError):
            campaigns.open_campaign(place.home, replace(asked, population="crowd", **change), "me")
    assert place.home.ledger.log.size() == size
    with pytest.raises(InputError, match="campaign"):
        job.submit(place.home, JobRequest("crowd", "ebm", "1", "0.00001"), by="me")


@pytest.mark.slow
def test_commands_of_the_page_do_what_it_says(place, tmp_path, monkeypatch):
    """docs/reference/owners.md, in its order; names of files stand for files."""
    page = part("docs/reference/owners.md", "Two aggregators").replace("https://campaigns.example", place.url)
    page = page.replace("census", "poll").replace("crowd", "folks")
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.S)).strip().splitlines()
    verbs = [" ".join(line.split()[1:3]) for line in lines]
    assert verbs == [
        "aggregator init", "aggregator init", "campaign population", "campaign open", "owner answer", "campaign close",
        "aggregator answer", "aggregator answer", "campaign close", "aggregator show",
    ]  # fmt: skip
    theirs, owns = re.findall(r"```toml\n(.*?)```", page, re.S)
    theirs = theirs.replace("[policy]", f'ca = "{place.ca}"\n[policy]')
    owns = owns.replace("[question]", f'ca = "{place.ca}"\n[question]')
    files = {name: str(tmp_path / name) for name in ("people.yaml", "invitations.txt", "one", "two", "owner.toml")}
    files |= {f"{name}/aggregator.json": str(tmp_path / name / "aggregator.json") for name in ("one", "two")}
    (tmp_path / "people.yaml").write_text(owners.SCHEMA)

    def run(line: str, **given: str) -> str:
        words = [given.get(word, files.get(word, word)) for word in shlex.split(line)[1:]]
        done = dpserve(place.home.path, *words)
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout + done.stderr

    for name, line in zip(("one", "two"), lines[:2], strict=True):
        assert "fingerprint" in run(line)
        (tmp_path / name / "aggregator.toml").write_text(theirs)
        (tmp_path / name / "trust.json").write_bytes((place.home.path / "trust.json").read_bytes())
    assert "delta 0.00001 each" in run(lines[2])
    opened = run(lines[3])
    tokens = dict(zip(("TOKEN1", "TOKEN2"), re.findall(r"dpa_[12]_[0-9a-f]+", opened), strict=True))
    fingerprint = read_aggregator(tmp_path / "two" / "aggregator.json").fingerprint
    invitations = (tmp_path / "invitations.txt").read_text().split()
    for number in range(3):
        own = tmp_path / f"owner-{number}"
        own.mkdir()
        owners.write(own / "rows.csv", owners.people(20, number))
        (own / "owner.toml").write_text(owns.replace("FINGERPRINT", fingerprint).replace(
            "trust.json", str(place.home.path / "trust.json")))  # fmt: skip
        files["owner.toml"] = str(own / "owner.toml")
        assert "two shares" in run(lines[4], INVITATION=invitations[number])
    assert "started" in run(lines[5])
    first = threading.Thread(target=run, args=(lines[6],), kwargs=tokens)
    first.start()
    assert "of 3 owners' shares" in run(lines[7], **tokens)
    first.join()
    assert "issued" in run(lines[8])
    assert "poll" in run(lines[9])
