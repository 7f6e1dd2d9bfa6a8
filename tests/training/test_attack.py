"""Attacks by canaries: registered with a training, made once, stated, verified by the auditor's arithmetic, and alarmed
where they show more than is claimed.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import shutil
from dataclasses import replace
from decimal import Decimal
from itertools import product
from math import comb

import numpy as np
import pytest
from ledgers import ROOT, advance, copy, hexes, place, plan, prepared, request, reserve, unjudged
from small_home import adult_home, dpserve

from accountant.audit.audit import audit_home
from accountant.certificates.attack import ATTACK
from accountant.errors import EntryRefused, WrongState
from accountant.home import Home, backup
from accountant.ledger import attacks
from dpserve_verify.certificates import attack as auditor
from dpserve_verify.command.program import main
from dpserve_verify.entries.attacks import Attackable, Attacks
from dpserve_verify.errors import CertificateInvalid, InputError, LedgerInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.privacy import attack_bound as bound
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.events import PureDp
from models.worth.attacks import attack_of, attack_words
from serving.cli.app import run as run_command
from studies.attacks import canaries
from training.jobs import attack, job
from training.requests import JobRequest
from training.session.session import Session

LEVEL, DELTA = auditor.LEVEL, Decimal("0.000001")
SMALL = {"trees": 4, "depth": 3}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A home with a model whose registered attack was made."""
    home = Home.open(place(copy(prepared(), tmp_path_factory.mktemp("attack") / "home")))
    job.train(home, JobRequest("adult", "forest", "0.5", parameters=SMALL, attack=40), by="ana")
    spent = home.ledger.dataset("adult").families[0].used
    shown = attack.attack(home, "adult", "ana")
    assert home.ledger.dataset("adult").families[0].used == spent  # it is free
    return home, shown


def test_it_is_registered_before_made_once_and_stated(attacked):
    home, shown = attacked
    entries = [home.ledger.log.entry(seq).value for seq in range(home.ledger.log.size())]
    kinds = [each["type"] for each in entries]
    assert entries[kinds.index("reserved")]["attack"] == shown["canaries"] == 40
    assert kinds.index("reserved") < kinds.index("started") < kinds.index("attack-started") < kinds.index("attacked")
    assert shown["right"] <= shown["guesses"] == 4
    assert not shown["refuted"]
    with pytest.raises((WrongState, InputError, LedgerInvalid), match="made once"):
        attack.attack(home, "adult", "ana")
    assert not audit_home(home).problems
    assert attack_words(attack_of(home, shown["job"])).endswith(f"not above the claim; entry {shown['entry']}")


def test_a_backup_holds_its_statement_and_an_audit_misses_it(attacked, tmp_path):
    """It is made once: what a backup left out nobody could make again."""
    home, shown = attacked
    assert backup.back_up(home, tmp_path / "copy").unknown == []
    backup.restore(tmp_path / "copy", there := place(tmp_path / "restored"))
    again = Home.open(there)
    assert attack_of(again, shown["job"]) == attack_of(home, shown["job"])
    assert audit_home(again).lost == ()
    shutil.rmtree(again.path / "attacks")
    (line,) = audit_home(again).lost
    assert line == f"attacks/{shown['job']}: what an attack on its model shows, stated by entry {shown['entry']}"


def test_the_small_verifier_reads_it(attacked, tmp_path, monkeypatch, capsys):
    home, shown = attacked
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main([shown["statement"], "--trust", str(home.path / "trust.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attack"]["attack"]["right"] == shown["right"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"right": 99}, "right: does not follow"),
        ({"leastEpsilon": "0.4"}, "leastEpsilon: does not follow"),
        ({"leastRho": "0.00005"}, "leastRho: must be in steps"),
        ({"rho": "1"}, "rho: not that of the mechanisms"),
        ({"in": [0, 0]}, "in order and apart"),
        ({"in": [0, 39], "out": [0, 5]}, "in order and apart"),
        ({"out": [0, 40], "in": [5, 6]}, "must be of the canaries"),
        ({"coins": "ff" * 6}, "a bit for each canary"),
        ({"coins": "ff"}, "a bit for each canary"),
    ],
)
def test_a_statement_that_does_not_follow_is_refused(attacked, change, says):
    home, shown = attacked
    body, stated = ATTACK.read(dsse.parse(ATTACK.file(home, shown["job"]).read_bytes()).payload)
    forged = auditor.AttackForm.read({**body["predicate"]["attack"], **change})
    plan = attack.plan_from_json(home.ledger.reservation(shown["job"]).value["plan"])
    auditor.check(stated.predicate.attack, plan, Decimal("0.5"), DELTA)
    with pytest.raises(CertificateInvalid, match=says):
        auditor.check(forged, plan, Decimal("0.5"), DELTA)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"canaries": 2000}, "canaries=2000: 1000 were registered"),
        ({"canaries": 500}, "canaries=500: 1000 were registered"),
        ({"right": 101}, "right=101: must be at most 100"),
        ({"right": 66}, "refuted: must be marked, as 66 of 100 are right"),
        ({"right": 65, "refuted": True}, "refuted: must not be marked, as 65 of 100 are right"),
    ],
)
def test_an_entry_that_does_not_follow_from_what_was_registered_is_refused(tmp_path, lie, says):
    """By who writes it; and by the audit, where somebody with the keys writes it all the same. Ten pure releases of .02
    have rho 10 x .02^2 / 2 and epsilon 10 x .02.
    """
    home = Home.open(place(copy(prepared(), tmp_path / "home")))
    small = plan(PureDp(Decimal("0.02")), 10)
    seq = reserve(home.ledger, replace(request("adult", "0.2", "0"), attack=1000), small).seq
    advance(home.ledger, seq, "issued")
    registered = Attacks()
    registered.note_reserved(seq, home.ledger.reservation(seq).value)
    assert registered.registered == {seq: Attackable(1000, Decimal("0.002"), Decimal("0.2"), Decimal(0))}
    drawn = attacks.start(home.ledger, seq, 1000, "ana")
    found = {"started": drawn.entry, "coins": drawn.digest, "canaries": 1000, "right": 50, **lie}
    entry = seq, hexes("statement"), found, False, home.keys.signer("issuer").public_key.keyid
    with pytest.raises(EntryRefused, match=says):
        attacks.enter(home.ledger, *entry)
    with unjudged():
        attacks.enter(home.ledger, *entry)
    assert any(says in problem for problem in audit_home(home).problems)


@pytest.mark.parametrize("claim", [("0.05", "0.3333"), ("0.05", "0.33331"), ("0.0002", "4"), ("9", "0.01")])
def test_the_mark_is_that_of_the_bounds_that_follow(claim):
    """For each number of right guesses, of claims on a step, between two, and of either figure alone."""
    rho, epsilon = map(Decimal, claim)
    seen = set()
    for right in range(21):
        above = [
            bound.lower_bound(200, 20, right, LEVEL, promise) > claimed
            for claimed, promise in ((rho, bound.of_rho), (epsilon, lambda least: bound.of_epsilon(least, DELTA)))
        ]
        seen.add(any(above))
        assert auditor.is_refuted(200, right, rho, epsilon, DELTA) == any(above)
    assert seen == {False, True}


def test_the_mark_changes_at_the_bound():
    """A claim of exactly what is shown stands, and half a step less does not: of each figure, the other being vast."""
    for right, half in product((66, 80, 100), (Decimal(0), Decimal("0.00005"))):
        rho = bound.lower_bound(1000, 100, right, LEVEL, bound.of_rho)
        epsilon = bound.lower_bound(1000, 100, right, LEVEL, lambda least: bound.of_epsilon(least, DELTA))
        assert auditor.is_refuted(1000, right, rho - half, Decimal(64), DELTA) == bool(half)
        assert auditor.is_refuted(1000, right, Decimal(64), epsilon - half, DELTA) == bool(half)


@pytest.mark.parametrize("field", ["canaries", "right", "refuted"])
def test_a_statement_that_differs_from_its_entry_is_refused(attacked, tmp_path, field):
    """The statement follows, and its entry, which somebody with the keys wrote, says something else."""
    home, shown = Home.open(place(copy(attacked[0].path, tmp_path / "home"))), attacked[1]
    envelope = ATTACK.file(home, shown["job"]).read_bytes()
    value = {**home.ledger.log.entry(shown["entry"]).value}
    kind, _ = value.pop("type"), value.pop("time")
    lie = {"canaries": 60, "right": (shown["right"] + 1) % 5, "refuted": True}[field]
    with unjudged(), home.ledger.log.writing() as writer:
        same, other = writer.append(kind, **value), writer.append(kind, **{**value, field: lie})
    assert ATTACK.verify(envelope, home.ledger.log.proof(same), home.trust).entry == same
    with pytest.raises(CertificateInvalid, match=f"its {field} is not the statement's"):
        ATTACK.verify(envelope, home.ledger.log.proof(other), home.trust)


@pytest.mark.statistical
def test_more_loss_than_is_claimed_is_refused_and_alarmed(tmp_path, monkeypatch, capsys):
    """A learner without any noise: the command ends with 4, its statement stands in the ledger, does not verify, and
    the audit fails. False alarm: two of 12 guesses have to be wrong; in 12 attacks measured so none was.
    """
    home = Home.open(place(copy(prepared(), tmp_path / "home")))
    job.train(home, JobRequest("adult", "forest", "0.2", parameters={"trees": 8, "depth": 8}, attack=120), by="ana")
    monkeypatch.setattr(Session, "draw", lambda self, mechanism, exact, asked: exact)
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    capsys.readouterr()
    assert run_command(["evaluate", "adult", "--attack", "--json"]) == 4
    shown = json.loads(capsys.readouterr().out)
    assert shown["refuted"]
    assert Decimal(shown["rho"]["least"]) > Decimal(shown["rho"]["claimed"])
    with pytest.raises(CertificateInvalid, match="shows more loss than is claimed"):
        ATTACK.open(home, shown["job"])
    (problem,) = audit_home(home).problems
    assert "more privacy loss than the certificate" in problem
    assert "ABOVE THE CLAIM" in attack_words(attack_of(home, shown["job"]))


def test_what_cannot_be_attacked_is_refused_before_it_costs(tmp_path):
    home = Home.open(place(copy(prepared(), tmp_path / "home")))
    size = home.ledger.log.size()
    for wrong, says in (
        ({"attack": 5}, "attack=5: must be 0, or 20 to 5000"),
        ({"attack": 40, "tuning": {"grid": {"trees": [2, 4]}}, "learner": "forest"}, "a tuned job"),
    ):
        with pytest.raises(InputError, match=says):
            job.train(
                home, JobRequest.of({"dataset": "adult", "learner": "forest", "epsilon": "0.5", **wrong}), by="ana"
            )
    assert home.ledger.log.size() == size
    job.train(home, JobRequest("adult", "forest", "0.5", parameters=SMALL), by="ana")
    with pytest.raises(InputError, match="no attack was registered"):
        attack.attack(home, "adult", "ana")
    with pytest.raises((WrongState, InputError, LedgerInvalid), match="no attack was registered"):
        attacks.start(home.ledger, size, 40, "ana")


def test_canaries_that_are_alike_only_weaken_it():
    """Two canaries with the same row have the same score: nothing else depends on what a row says."""
    of = canaries.target("1", **SMALL)
    table, moves = of.canaries(20), np.ones((20, 3))
    assert len(table) == 21
    assert of.public.relation is Relation.ADD_REMOVE
    assert len({*attack.tell_apart(moves, np.array([1.0, 2.0, 3.0])).round(9)}) == 1


def test_scores_do_not_see_the_coins(monkeypatch):
    """The coins go into the first play alone: with the same answers, other coins give the same scores."""
    of, released = canaries.target("1", **SMALL), []
    play = attack.Attacked.play

    def first(self, table, answers=None):
        if answers is None:
            released.append(released[0] if released else play(self, table))
            return released[0]
        return play(self, table, answers)

    monkeypatch.setattr(attack.Attacked, "play", first)
    one, other = (of.scores(np.array([secrets.randbits(1) for _ in range(20)], bool)) for _ in range(2))
    assert np.array_equal(one, other)


# ---- the bound -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3"])
@pytest.mark.parametrize(("canaries", "guesses"), [(4, 4), (6, 4), (8, 8)])
def test_randomized_response_is_never_refuted_more_often_than_the_level(epsilon, canaries, guesses):
    """Exact: independent answers of the worst epsilon-DP mechanism; those guessed are any `guesses` of them."""
    p = float(Decimal(epsilon).exp() / (1 + Decimal(epsilon).exp()))
    for level in (Decimal("0.3"), Decimal("0.05")):
        least = bound.of_epsilon(Decimal(epsilon), Decimal(0))
        refuted = sum(
            comb(guesses, right) * p**right * (1 - p) ** (guesses - right)
            for right in range(guesses + 1)
            if bound.refutes(canaries, guesses, right, level, least)
        )
        assert refuted <= float(level)


def test_mechanisms_that_tie_canaries_together_are_not_refuted_either():
    """Exact: with chance delta all coins are shown at once, else nothing: (0, delta)-DP for each canary."""
    m = 8
    for delta in (Decimal("0.05"), Decimal("0.2")):
        least = bound.of_epsilon(Decimal(0), delta)
        for right in range(m + 1):
            by_chance = sum(comb(m, each) for each in range(right, m + 1)) / 2**m
            chance = float(delta) + (1 - float(delta)) * by_chance
            assert not bound.refutes(m, m, right, Decimal(str(round(chance * 0.999, 9))), least)


def test_a_promise_of_half_is_refuted_by_enough_right_guesses():
    """By halving a chance of a promise: the bound sees what is off by two."""
    m, k = 1000, 300
    rights = [bound.lower_bound(m, k, right, LEVEL, bound.of_rho) for right in (150, 210, 240, 270)]
    assert rights == sorted(rights)
    assert rights[0] == 0
    assert rights[-1] > Decimal("0.1")
    for right, least in zip((210, 240, 270), rights[1:], strict=True):
        assert bound.refutes(m, k, right, LEVEL, bound.of_rho(least))
        assert not bound.refutes(m, k, right, LEVEL, bound.of_rho(2 * least))


def test_the_curve_of_rho_is_below_every_event_of_a_gaussian():
    """With rho = mu^2 / 2 an event's chance without the canary is at least what the bound says, and not far above."""
    from statistics import NormalDist

    normal = NormalDist()
    for mu, r in product((0.1, 0.5, 2.0), (0.001, 0.02, 0.3)):
        least = float(bound.of_rho(Decimal(str(mu * mu / 2)))(Decimal(str(r))))
        truth = normal.cdf(normal.inv_cdf(r) - mu)
        assert least <= truth <= 10 * least


def test_halved_noise_is_caught_and_sound_noise_is_not():
    """By the law of a Gaussian at epsilon 2, of 100 attacks: of sound noise at most 2 refute, of half at least 80."""
    rng, m, k, mu = np.random.default_rng(7), 5000, auditor.guesses_of(5000), 0.4483
    promise = bound.of_rho(Decimal(str(mu * mu / 2)))
    fewest = next(right for right in range(k * 4 // 5, k + 1) if bound.refutes(m, k, right, LEVEL, promise))
    for times, low, high in ((1, 0, 2), (2, 80, 100)):
        caught = 0
        for _ in range(100):
            coins = rng.integers(0, 2, m).astype(bool)
            inside, outside = attack.guess(rng.normal(size=m) + times * mu * coins, k)
            caught += int(coins[inside].sum() + (~coins[outside]).sum()) >= fewest
        assert low <= caught <= high, caught


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "reference" / "certificate.md").read_text("utf-8")
    lines = re.search(r"## The statement of an attack\n\n```sh\n(.*?)```", page, re.S)[1].splitlines()
    home = adult_home(tmp_path, epsilon=5).path
    monkeypatch.chdir(tmp_path)
    said = []
    for line in lines:
        done = dpserve(home, *shlex.split(line, comments=True)[1:])
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    assert "not above the claim" in said[1]
    assert "not vouched for" not in said[3]
    assert "not above the claim" in dpserve(home, "model", "show", "checked").stdout
    again = dpserve(home, "evaluate", "checked", "--attack")
    assert again.returncode
    assert "made once" in again.stderr
    statement = next((home / "attacks").glob("*/attack.dsse.json"))
    assert "guesses right" in dpserve(home, "verify", str(statement)).stdout
