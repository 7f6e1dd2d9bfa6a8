"""Owners over real HTTPS: they answer once, whatever kills them; what they did not agree to costs them nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import owner_crash
import owners
import pytest
from https import served
from in_process import Site
from pages import part
from small_home import ROOT, dpserve

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.audit.audit import audit_home
from accountant.errors import WrongState
from accountant.home import Home
from dpserve_verify.errors import (
    BudgetRefused,
    CertificateInvalid,
    DpserveError,
    InputError,
    KeyInvalid,
    LedgerInvalid,
    LedgerUnavailable,
)
from dpserve_verify.keys import dsse
from local.campaign import campaigns
from local.doors import campaigns as doors
from local.owner import program
from local.owner.own_ledger import OwnLedger
from local.owner.settings import read_settings
from models.store.bundle import ModelStore
from models.store.loading import load_verified
from serving.process.tokens import new_token

pytestmark = pytest.mark.slow

OWNERS = 12
ATTEMPTS = count()
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
total_epsilon = "3"
largest_epsilon = "2"
least_owners = 10

[ranges]
a = [-3, 3]
"""


class Place:
    """A home that asks, over HTTPS, and a folder for every owner."""

    def __init__(self, folder: Path, site: Site, url: str, ca: Path) -> None:
        self.folder, self.site, self.home, self.url, self.ca = folder, site, site.home, url, ca

    def owner(self, number: int, toml: str = TOML, rows: int = 1, classes: int = 2) -> Path:
        """The settings of a new owner."""
        own = self.folder / f"owner-{number}"
        own.mkdir(exist_ok=True)
        owners.write(own / "rows.csv", owners.people(rows, number, classes))
        text = toml.format(url=self.url, trust=self.home.path / "trust.json", ca=self.ca)
        (own / "owner.toml").write_text(text)
        return own / "owner.toml"

    def invitation(self, number: int, name: str = "survey") -> str:
        return campaigns.invitation(self.home, name, number)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owners")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    owners.asking(folder, home, OWNERS, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(home.path))
        site = Site(home, doors.DOORS)
        with served(site, folder) as (url, ca):
            yield Place(folder, site, url, ca)


def answered(place: Place, number: int, name: str = "survey", toml: str = TOML, of: int = 0) -> int:
    """Of the owner of that number, whose own ledger is the one of `of + number`: a test has owners of its own."""
    settings = read_settings(place.owner(of + number, toml))
    return program.number_of_report(program.answer(settings, name, place.invitation(number, name)))


def test_owner_answers_once_and_is_told_what_it_cost(place):
    settings = read_settings(place.owner(0))
    line = program.answer(settings, "survey", place.invitation(0))
    again = program.answer(settings, "survey", place.invitation(0))
    assert (again.body, again.drawn) == (line.body, line.drawn)
    assert len(line.body) < 120  # the report itself is one number below 64; the rest is the invitation
    assert "epsilon 2 of your own budget" in program.words(line)
    told = program.summarize(settings)
    assert (told["spent"], told["total"], len(told["reports"])) == ("2", "3", 1)
    assert place.home.path.joinpath("campaigns/survey/reports.db").exists()
    found, values = campaigns.load(place.home, "survey").reports.all()
    assert dict(zip(found.tolist(), values.tolist(), strict=True))[0] == program.number_of_report(line)


@pytest.mark.parametrize("step", owner_crash.STEPS)
def test_killed_at_any_step_at_most_one_report_is_drawn(place, step):
    number = 1 + owner_crash.STEPS.index(step)
    toml = place.owner(number)
    what = [step, str(toml), "survey", place.invitation(number)]
    command = [sys.executable, str(ROOT / "tests/helpers/owner_crash.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([*command, *what], env=environment, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    stored = OwnLedger(toml.parent / "owner.db").lines()
    assert len(stored) == (step in ("committed", "delivered"))
    line = program.answer(read_settings(toml), "survey", place.invitation(number))
    assert [line.body] == ([stored[0].body] if stored else [line.body])
    found, values = campaigns.load(place.home, "survey").reports.all()
    assert dict(zip(found.tolist(), values.tolist(), strict=True))[number] == program.number_of_report(line)


def test_owners_are_asked_in_turns_and_go_by_what_the_log_holds(place):
    owners.asking(place.folder, place.home, OWNERS, 4, "turns", learner="local-stump", rounds="2", epsilon="1")
    allows = TOML.replace("[policy]", "[policy]\nmost_rounds = 2")

    def answer(number: int, toml: str = allows) -> int:
        settings = read_settings(place.owner(30 + number, toml, rows=3))
        return program.number_of_report(program.answer(settings, "turns", place.invitation(number, "turns")))

    def drawn(number: int) -> int:
        return len(OwnLedger(place.folder / f"owner-{30 + number}" / "owner.db").lines())

    with pytest.raises(InputError, match="most_rounds"):
        answer(0, TOML)
    with pytest.raises(WrongState, match="at turn 1 of 2, and yours is 2"):
        answer(1)
    assert (drawn(0), drawn(1)) == (0, 0)
    first = [answer(number) for number in (0, 2, 4)]
    assert campaigns.end_turn(place.home, "turns")["turn"] == 2
    assert answer(0) == first[0]  # the same bytes, though the turn is over
    with pytest.raises(WrongState, match="yours is 1"):
        answer(6)
    published = place.home.path / "campaigns" / "turns" / "turns" / "1.json"
    honest = published.read_bytes()
    published.write_bytes(honest.replace(b'"votes":[', b'"votes":[["above",0,1,1024],'))
    with pytest.raises(CertificateInvalid, match="the log does not say"):
        answer(1)
    published.write_bytes(honest)
    assert (drawn(1), drawn(6)) == (0, 0)
    for number, step in ((9, "drawn"), (11, "committed")):  # whatever kills an owner, one report is drawn in its turn
        toml = place.owner(30 + number, allows, rows=3)
        command = [sys.executable, str(ROOT / "tests/helpers/owner_crash.py"), step, str(toml), "turns"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        killed = subprocess.run(
            [*command, place.invitation(number, "turns")], env=environment, capture_output=True, check=False
        )
        assert (killed.returncode, drawn(number)) == (-9, step == "committed"), killed.stderr
    for number in (1, 3, 5, 7, 9, 11):
        answer(number)
        assert drawn(number) == 1
    settings = read_settings(place.owner(31, allows, rows=3))
    assert program.summarize(settings)["spent"] == "1"
    done = campaigns.close(place.home, "turns")
    assert (done["state"], done["reports"]) == ("issued", 9)

    owners.asking(place.folder, place.home, OWNERS, 2, "weigh", learner="local-ncc", rounds="1", epsilon="1")
    with pytest.raises(WrongState, match="yours is 2"):
        answered(place, 7, "weigh", allows, of=70)
    assert 0 <= answered(place, 0, "weigh", allows, of=70) < 64
    campaigns.end_turn(place.home, "weigh")
    assert answered(place, 7, "weigh", allows, of=70) in (0, 1)  # one bit: whether the line is right on its rows


def test_owners_of_three_classes_answer_over_https(place):
    """At once, by stumps in turns, and by lines in turns: from the owner's file to an issued model that audits."""
    allows = TOML.replace("[policy]", "[policy]\nmost_rounds = 2").replace('total_epsilon = "3"', 'total_epsilon = "9"')
    allows = allows.replace('["no", "yes"]', '["no", "yes", "maybe"]')
    asked = {"three": {}, "stumps3": {"learner": "local-stump", "rounds": "2"},
             "lines3": {"learner": "local-ncc", "rounds": "1"}}  # fmt: skip
    for name, more in asked.items():
        owners.asking(place.folder, place.home, OWNERS, 4, name, classes="3", **more)
        turns = campaigns.state(place.home, name)["turns"] or 1
        for turn in range(1, turns + 1):
            definition = campaigns.load(place.home, name).definition
            for number in (0, 1, 2, 7):
                if turns > 1 and definition.turn_of(number) != turn:
                    continue
                settings = read_settings(place.owner(50 + number, allows, rows=5, classes=3))
                said = program.number_of_report(program.answer(settings, name, place.invitation(number, name)))
                assert 0 <= said < (2 if name == "lines3" and turn == 2 else 64)
            if turn < turns:
                campaigns.end_turn(place.home, name)
        assert campaigns.state(place.home, name)["reports"] == 4
    assert campaigns.close(place.home, "three")["state"] == "issued"
    loaded = load_verified(ModelStore(place.home.models).resolve("three"), place.home.trust)
    assert loaded.ensemble.classes == owners.LABELS
    wrong = place.owner(50, allows)
    (wrong.parent / "rows.csv").write_text("a,b,c,answer\n1,2,u,perhaps\n")
    owners.asking(place.folder, place.home, OWNERS, 4, "again3", classes="3")
    spent = program.summarize(read_settings(wrong))["spent"]
    program.answer(read_settings(wrong), "again3", place.invitation(0, "again3"))  # and nobody sees that it is another
    assert float(program.summarize(read_settings(wrong))["spent"]) > float(spent)
    for name in ("stumps3", "lines3", "again3"):
        campaigns.give_up(place.home, name, "steward", "the test is over")
    assert audit_home(place.home).ok


def test_policy_decides_before_anything_is_drawn(place):
    changes = {
        'largest_epsilon = "2"': ('largest_epsilon = "1.9"', BudgetRefused),
        'total_epsilon = "3"': ('total_epsilon = "1.9"', BudgetRefused),
        "least_owners = 10": ("least_owners = 13", InputError),
        "a = [-3, 3]": ("a = [-2, 2]", InputError),
        "[ranges]": ('learners = ["local-lr"]\n[ranges]', InputError),
        "[policy]": ("colour = 1\n[policy]", InputError),
    }
    for was, (becomes, error) in changes.items():
        toml = place.owner(8, TOML.replace(was, becomes))
        with pytest.raises(error):
            program.answer(read_settings(toml), "survey", place.invitation(8))
        assert OwnLedger(toml.parent / "owner.db").lines() == []


def test_a_file_that_cannot_be_opened_is_found_before_anybody_is_asked(place):
    toml = place.owner(9)
    (toml.parent / "rows.csv").unlink()
    away = read_settings(toml)
    with pytest.raises(InputError, match="is no file"):
        program.answer(replace(away, url="https://127.0.0.1:9"), "survey", place.invitation(9))
    assert OwnLedger(toml.parent / "owner.db").lines() == []
    (toml.parent / "rows.csv").write_text("a,b,c,answer\n,nan,w,yes\n,nan,w,no\n,nan,w,yes\n")
    line = program.answer(away, "survey", place.invitation(9))
    assert 0 <= program.number_of_report(line) < 64
    (toml.parent / "rows.csv").unlink()  # what was drawn is sent again without the rows
    assert program.answer(away, "survey", place.invitation(9)).body == line.body


def test_campaign_that_is_not_signed_or_not_in_the_log_is_refused(place):
    offer, trust = campaigns.offer(place.home, "survey"), place.home.trust
    definition = program.verify_offer(offer, trust, "survey").definition
    wider = replace(definition.features[0], edges=tuple(3 * edge for edge in definition.features[0].edges))
    changed = {
        "seed": "f" * 64,
        "public_rows": "e" * 64,
        "classes": ("no", "yes", "maybe"),
        "epsilon": definition.epsilon / 2,
        "candidates": 32,
        "owners": OWNERS - 1,
        "features": (wider, *definition.features[1:]),
    }
    for field, value in changed.items():  # for one owner other than for the rest
        other = replace(definition, **{field: value})
        signed = dsse.sign(other.payload, place.home.keys.signer("issuer")).decode()
        with pytest.raises(CertificateInvalid, match="does not open"):
            program.verify_offer({**offer, "envelope": signed}, trust, "survey")
    with pytest.raises(CertificateInvalid, match="asked for"):
        program.verify_offer(offer, trust, "another")
    for wrong in ({}, {**offer, "proof": None}, {**offer, "envelope": "{}"}):
        with pytest.raises(DpserveError):
            program.verify_offer(wrong, trust, "survey")
    with pytest.raises(LedgerInvalid):
        program.verify_offer({**offer, "proof": offer["proof"].replace("index ", "index 1")}, trust, "survey")
    stranger = Home.init({"DPSERVE_HOME": str(place.folder / "stranger")})
    with pytest.raises((CertificateInvalid, KeyInvalid)):
        program.verify_offer(offer, stranger.trust, "survey")


def test_another_definition_of_a_name_that_was_answered_costs_nothing(place):
    ledger = OwnLedger(place.folder / "apart.db")
    definition = campaigns.load(place.home, "survey").definition
    ledger.report(definition, definition.epsilon, lambda: b'{"report":1}')
    with pytest.raises(WrongState, match="something else"):
        ledger.report(replace(definition, seed="0" * 64), definition.epsilon * 9, lambda: b"")


def test_service_that_is_away_or_refuses(place):
    away = place.owner(10, TOML.replace("{url}", "https://127.0.0.1:9"))
    with pytest.raises(LedgerUnavailable, match="no answer"):
        program.answer(read_settings(away), "survey", place.invitation(10))
    with pytest.raises(program.Refused, match="403"):
        program.answer(read_settings(place.owner(10)), "survey", "dpi_10_" + "0" * 40)
    with pytest.raises(program.Refused, match="404"):
        program.answer(read_settings(place.owner(11)), "nothing", place.invitation(11))
    with pytest.raises(LedgerUnavailable):  # a certificate of nobody that this owner trusts
        program.answer(
            read_settings(place.owner(11, TOML.replace('ca = "{ca}"\n', ""))), "survey", place.invitation(11)
        )


def test_bad_requests_of_strangers_get_an_answer_each(place):
    post = lambda body: place.site.ask("POST", "/v1/campaigns/survey/reports", json=body)  # noqa: E731
    good = place.invitation(11)
    assert post({"invitation": good[:-1], "report": 1}).status_code == 403
    assert post({"invitation": good, "report": 64}).status_code == 400
    assert post({"invitation": good, "report": True}).status_code == 400
    assert post({"invitation": good}).status_code == 400
    assert post({"invitation": good, "report": 5}).status_code == 200
    assert post({"invitation": good, "report": 6}).status_code == 409
    assert place.site.ask("GET", "/v1/campaigns").status_code == 401
    assert place.site.ask("GET", "/v1/campaigns/none").status_code == 404
    shown = place.site.bear(place.site.token("steward", "audit"), "GET", "/v1/campaigns").json()["campaigns"]
    assert "survey" in [each["campaign"] for each in shown]


def test_who_may_train_on_the_owners_ends_turns_and_campaigns(place):
    """And nobody else: not who may train on another population, nor who may only look."""
    owners.asking(place.folder, place.home, OWNERS, 4, "ends", learner="local-stump", rounds="2", epsilon="0.5")
    for number in (0, 2, 4):
        campaigns.receive(place.home, "ends", campaigns.invitation(place.home, "ends", number), 3)
    owners.asking(place.folder, place.home, OWNERS, 4, "ends3", classes="3")  # of another population
    for principal, on in (("here", "folk"), ("elsewhere", "folk3")):
        grants.add(place.home.ledger, [Grant(principal, "train", "dataset", on)], "test")
    here, elsewhere = (new_token(place.home, name, [], principal=name)[0] for name in ("here", "elsewhere"))
    looks = place.site.token("looks", "audit")
    change = lambda token, act, body: place.site.bear(token, "POST", f"/v1/campaigns/ends/{act}", json=body)  # noqa: E731
    for token in (elsewhere, looks):
        for act, body in (("next", {}), ("close", {}), ("give-up", {"reason": "mine"})):
            assert change(token, act, body).status_code == 403, act
    assert campaigns.state(place.home, "ends")["turn"] == 1
    assert change(here, "next", {"turn": 1}).status_code == 400
    done = change(here, "next", {})
    assert (done.status_code, done.json()["turn"]) == (200, 2)
    assert change(here, "next", {}).status_code == 409  # nobody has answered in it
    few = change(here, "close", {})
    assert (few.status_code, few.json()["error"]["code"]) == (409, "job_failed")  # 3 reports; 4 were declared
    assert change(here, "give-up", {"reason": "late"}).status_code == 409
    assert place.site.bear(here, "POST", "/v1/campaigns/none/next", json={}).status_code == 404


def test_program_needs_nothing_that_trains_or_serves():
    heavy = ("numba", "sklearn", "bentoml", "sqlalchemy", "scipy", "pandas", "pyarrow", "onnx", "opendp")
    code = f"import sys, json, local.owner.program; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert json.loads(found.stdout) == []


@pytest.mark.last
def test_closed_after_the_owners_answered_it_is_a_model(place):
    done = campaigns.close(place.home, "survey")
    assert done["state"] == "issued"
    with pytest.raises(program.Refused, match="409"):
        answered(place, 8)


@pytest.mark.slow
def test_commands_of_the_page_do_what_it_says(place):
    """The page's first two parts, in their order, but that owners answer before the campaign is closed; names of
    files and campaigns stand for those of this attempt.
    """
    page = "".join(part("docs/reference/owners.md", name) for name in ("Reports", "Answering as an owner"))
    attempt = next(ATTEMPTS)  # a forecast, which is drawn, refuses what the page opens once in some hundred times
    folder, first_owner = place.folder / f"page-{attempt}", 1000 + 10 * attempt
    folder.mkdir()
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.S)).strip().splitlines()
    verbs = [line.split()[2] for line in lines]
    assert verbs == [
        "population",
        "open",
        "show",
        "close",
        "open",
        "next",
        "give-up",
        "init",
        "check",
        "answer",
        "show",
    ]
    toml = re.findall(r"```toml\n(.*?)```", page, re.S)[0].replace("https://campaigns.example", place.url)
    toml = toml.replace("trust.json", str(place.home.path / "trust.json"))
    toml = toml.replace("[question]", f'ca = "{place.ca}"\n[question]')
    named = {name: str(folder / name) for name in ("people.yaml", "invitations.txt", "boosted.txt", "new.toml")}
    named |= {name: f"{name}-{attempt}" for name in ("people", "survey", "boosted")}
    named["public.csv"] = str(place.folder / "public.csv")
    (folder / "people.yaml").write_text(owners.SCHEMA)

    def run(line: str) -> str:
        done = dpserve(place.home.path, *(named.get(word, word) for word in shlex.split(line)[1:]))
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    population, opening, show, close, boosted, following, burning, founding, check, answer, shown = lines
    assert "1000 owners, epsilon 5 each" in run(population)
    run(opening)
    invitations = Path(named["invitations.txt"]).read_text().split()
    assert len(invitations) == 1000
    for number in range(3):
        named["owner.toml"] = str(place.owner(first_owner + number, toml))
        assert "rows: 1, of which 1 have an answer" in run(check)
        assert "epsilon 2 of your own budget" in run(answer.replace("INVITATION", invitations[number]))
    assert "spent: epsilon 2 of 5" in run(shown)
    named["rows.csv"] = str(place.folder / f"owner-{first_owner}" / "rows.csv")
    assert "of which 1" in run(founding)
    new = read_settings(folder / "new.toml").policy
    assert new.question == read_settings(Path(named["owner.toml"])).policy.question
    assert "3, at least 3 are needed" in run(show)
    assert "issued" in run(close)
    assert "1 of 4: 0 reports, at least 1 are needed" in run(boosted)
    first = Path(named["boosted.txt"]).read_text().split()[0]
    run(answer.replace("INVITATION", first).replace("survey", "boosted"))
    assert "2 of 4: 0 reports" in run(following)
    assert f"{named['boosted']}: burned" in run(burning)
