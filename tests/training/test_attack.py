"""Attacks by canaries: registered with a training, made once, stated, verified by the auditor's arithmetic, and alarmed
where they show more than is claimed.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from decimal import Decimal
from itertools import product
from math import comb
from statistics import NormalDist

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
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release
from models.worth.attacks import attack_of, attack_words
from serving.cli.app import run as run_command
from studies.attacks import canaries
from training.jobs import attack, job
from training.requests import JobRequest
from training.session.session import Session

DELTA = Decimal("0.000001")
SMALL = {"trees": 4, "depth": 3}
REFUTING = 801  # of 1,000 right guesses: the fewest above a claim of ten pure releases of .02


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A home with a model whose registered attack was made."""
    home = Home.open(place(copy(prepared(), tmp_path_factory.mktemp("attack") / "home")))
    # of these guesses .69 are right, and 38 of 40 are above the claim: by chance once in 10,000
    job.train(home, JobRequest("adult", "bdpe", "0.5", parameters={"rounds": 8}, attack=40), by="ana")
    spent = home.ledger.dataset("adult").families[0].used
    shown = attack.attack(home, "adult", "ana")
    assert home.ledger.dataset("adult").families[0].used == spent  # it is free
    return home, shown


def test_it_is_registered_before_made_once_and_stated(attacked):
    home, shown = attacked
    entries = [home.ledger.log.entry(seq).value for seq in range(home.ledger.log.size())]
    kinds = [each["type"] for each in entries]
    assert entries[kinds.index("reserved")]["attack"] == shown["runs"] == 40
    assert kinds.index("reserved") < kinds.index("started") < kinds.index("attack-started") < kinds.index("attacked")
    assert shown["copies"] > 1
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
        ({"right": 41}, "right: does not follow"),
        ({"copies": 1}, "copies: does not follow"),
        ({"claimed": "0.9"}, "claimed: does not follow"),
        ({"least": "0.0001"}, "least: does not follow"),
        ({"leastEpsilon": "0.4"}, "leastEpsilon: does not follow"),
        ({"coins": "ff" * 6}, "coins: must be a bit for each run"),
        ({"guesses": "ff" * 6}, "guesses: must be a bit for each run"),
        ({"guesses": "ff"}, "guesses: must be a bit for each run"),
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
        ({"runs": 2000}, "runs=2000: 1000 were registered"),
        ({"runs": 500}, "runs=500: 1000 were registered"),
        ({"right": 1001}, "right=1001: must be at most 1000"),
        ({"right": REFUTING}, f"refuted: must be marked, as {REFUTING} of 1000 are right"),
        ({"right": REFUTING - 1, "refuted": True}, f"refuted: must not be marked, as {REFUTING - 1} of 1000 are right"),
    ],
)
def test_an_entry_that_does_not_follow_from_what_was_registered_is_refused(tmp_path, lie, says):
    """By who writes it; and by the audit, where somebody with the keys writes it all the same. Ten pure releases of .02
    have mu^2 = 10 x .02^2 x pi / 2, so a canary has 25 copies; the best adversary then guesses right with .7786.
    """
    home = Home.open(place(copy(prepared(), tmp_path / "home")))
    small = plan(PureDp(Decimal("0.02")), 10)
    seq = reserve(home.ledger, replace(request("adult", "0.2", "0"), attack=1000), small).seq
    advance(home.ledger, seq, "issued")
    registered = Attacks()
    registered.note_reserved(seq, home.ledger.reservation(seq).value)
    assert registered.registered == {seq: Attackable(1000, 7786)}
    drawn = attacks.start(home.ledger, seq, 1000, "ana")
    found = {"started": drawn.entry, "coins": drawn.digest, "runs": 1000, "right": 500, **lie}
    entry = seq, hexes("statement"), found, False, home.keys.signer("issuer").public_key.keyid
    with pytest.raises(EntryRefused, match=says):
        attacks.enter(home.ledger, *entry)
    with unjudged():
        attacks.enter(home.ledger, *entry)
    assert any(says in problem for problem in audit_home(home).problems)


def test_the_mark_is_that_of_the_bounds_that_follow():
    """For every number of right guesses, of claims on a step and beside it: by chance and by epsilon alike."""
    for right, claimed in product(range(41), (5000, 6543, 7785, 7786, 10_000)):
        least = bound.least_chance(right, 40)
        assert bound.is_unlikely(right, 40, claimed) == (least >= claimed)
        epsilon = bound.least_epsilon(least, DELTA, 3)
        assert bound.by_epsilon(epsilon, DELTA, 3) <= max(least, bound.by_epsilon(Decimal(0), DELTA, 3))
        assert bound.by_epsilon(epsilon + Decimal("0.0001"), DELTA, 3) > least or epsilon == 64


@pytest.mark.parametrize("field", ["runs", "right", "refuted"])
def test_a_statement_that_differs_from_its_entry_is_refused(attacked, tmp_path, field):
    """The statement follows, and its entry, which somebody with the keys wrote, says something else."""
    home, shown = Home.open(place(copy(attacked[0].path, tmp_path / "home"))), attacked[1]
    envelope = ATTACK.file(home, shown["job"]).read_bytes()
    value = {**home.ledger.log.entry(shown["entry"]).value}
    kind, _ = value.pop("type"), value.pop("time")
    lie = {"runs": 60, "right": (shown["right"] + 1) % 40, "refuted": True}[field]
    with unjudged(), home.ledger.log.writing() as writer:
        same, other = writer.append(kind, **value), writer.append(kind, **{**value, field: lie})
    assert ATTACK.verify(envelope, home.ledger.log.proof(same), home.trust).entry == same
    with pytest.raises(CertificateInvalid, match=f"its {field} is not the statement's"):
        ATTACK.verify(envelope, home.ledger.log.proof(other), home.trust)


@pytest.mark.statistical
def test_more_loss_than_is_claimed_is_refused_and_alarmed(tmp_path, monkeypatch, capsys):
    """A learner with half of its noise: the command ends with 4, its statement stands in the ledger, does not verify,
    and the audit fails. False alarm: 8 copies are right in .969 of guesses, and 87 of 100 are above the claim: 1e-6.
    """
    home = Home.open(place(copy(prepared(), tmp_path / "home")))
    job.train(home, JobRequest("adult", "forest", "0.5", parameters=SMALL, attack=100), by="ana")
    monkeypatch.setattr(Session, "draw", canaries.draw_half)
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    capsys.readouterr()
    assert run_command(["evaluate", "adult", "--attack", "--json"]) == 4
    shown = json.loads(capsys.readouterr().out)
    assert shown["refuted"]
    assert Decimal(shown["chance"]["least"]) >= Decimal(shown["chance"]["claimed"])
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


@pytest.mark.parametrize("learner", ["forest", "ebm", "lazybb", "lazybb-tree", "bdpe"])
def test_guesses_do_not_see_the_coins(monkeypatch, learner):
    """A coin tells on which rows a learner is played: with the same answers, the other one gives the same guess."""
    of, drawn, given = canaries.target(learner, "1", **FEW[learner]), [], []
    draw = Session.draw
    monkeypatch.setattr(Session, "draw", lambda *call: drawn.append(draw(*call)) or drawn[-1])
    one = of.guess(0, 1)
    monkeypatch.setattr(Session, "draw", lambda *call: given.append(0) or drawn[len(given) - 1])
    assert of.guess(1, 1) == one
    assert len(given) == len(drawn) > 4


@pytest.mark.parametrize("event", [BoundedRange(Decimal("0.7")), PureDp(Decimal("0.7")), Gaussian(Decimal(3))])
def test_an_answer_is_weighed_by_the_law_of_its_noise(event):
    """Exact: the chances of answers as they are weighed add up to one law whatever stands before the noise, and one
    unit more changes none by more than is priced.
    """
    ranged = isinstance(event, BoundedRange)
    asked, grid = Release("x", "any", "range" if ranged else "l1", 2, event), range(-150, 151)
    if ranged:
        weights = [
            np.exp([attack.log_chance(asked, np.array([at]), np.array([scores])) for at in range(3)])
            for scores in ([4, 0, 1], [6, 0, 1])
        ]
    else:
        weights = [
            np.exp([attack.log_chance(asked, np.array([at]), np.array([exact])) for at in grid]) for exact in (0, 2)
        ]
    one, other = (each / each.sum() for each in weights)
    assert abs(weights[0].sum() / weights[1].sum() - 1) < 1e-9
    losses = np.log(one / other)
    if ranged:
        assert losses.max() - losses.min() == pytest.approx(0.7)
    elif isinstance(event, PureDp):
        assert np.abs(losses).max() == pytest.approx(0.7)
    else:
        assert (one * losses).sum() == pytest.approx(1 / 18)


# ---- the bound -------------------------------------------------------------------------------------------------------


def of_events(event, count=1, mechanism="any"):
    return Plan(((Release("x", mechanism, "l2", 1000, event), count),))


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "3", "9"])
def test_a_choice_and_randomized_response_are_no_further_apart_than_normal_numbers(epsilon):
    """Exact: of every release with losses in [t - e, t] the one point that shows most; at t = e / 2 it is met."""
    normal, e = NormalDist(), float(epsilon)
    for event, wide in ((BoundedRange(Decimal(epsilon)), e), (PureDp(Decimal(epsilon)), 2 * e)):
        mu = float(bound.squared_mu(of_events(event))[0]) ** 0.5
        apart = []
        for t in np.linspace(0.001, 0.999, 999) * wide:
            out = np.expm1(wide - t) / np.exp(wide - t) / (np.exp(t) * -np.expm1(-wide))
            apart.append(normal.inv_cdf(out * np.exp(t)) - normal.inv_cdf(out))
        assert max(apart) == pytest.approx(apart[499], rel=1e-6)
        assert 0.6 * mu <= max(apart) <= mu
        assert e > 1 or 0.98 * mu <= max(apart)


@pytest.mark.parametrize(("count", "e"), [(1, "0.5"), (4, "0.5"), (25, "0.3"), (60, "0.1"), (300, "0.02")])
def test_no_adversary_guesses_better_than_the_ceiling_nor_far_below_it(count, e):
    """By choices whose losses are e / 2 or -e / 2, all alike: exact, and below; so many normal numbers are near."""
    plan_, delta = of_events(BoundedRange(Decimal(e)), count), Decimal("0.5")
    width = float(e) * bound.copies_of(plan_)
    odds = 1 / (1 + np.exp(-width / 2))
    laws = [[comb(count, at) * p**at * (1 - p) ** (count - at) for at in range(count + 1)] for p in (odds, 1 - odds)]
    best = (1 + sum(max(0, one - other) for one, other in zip(*laws, strict=True))) / 2
    ceiling = bound.ceiling(plan_, Decimal(64), delta) / 10_000
    assert best <= ceiling <= best + 0.04
    assert ceiling <= NormalDist().cdf(float(bound.squared_mu(plan_)[0]) ** 0.5 * bound.copies_of(plan_) / 2) + 1e-4


def test_the_ceiling_is_that_of_all_copies_rounded_up():
    for noise in ("0.4", "3", "70", "100000"):
        plan_ = of_events(Gaussian(Decimal(noise)), 5)
        mu = 5**0.5 / float(noise)
        copies = bound.copies_of(plan_)
        assert copies == min(max(1, round(2 / mu)), bound.MOST_COPIES)
        exact = 10_000 * NormalDist().cdf(copies * mu / 2)
        assert exact <= bound.ceiling(plan_, Decimal(100), DELTA) <= min(exact + 1.001, 10_000)
        loose = bound.ceiling(of_events(Gaussian(Decimal(noise)), 5, "objective-perturbation"), Decimal(100), DELTA)
        assert loose >= bound.ceiling(plan_, Decimal(100), DELTA)
    pure = of_events(PureDp(Decimal(1)))
    assert bound.ceiling(pure, Decimal(1), Decimal(0)) == 8808  # two copies: e^2 / (1 + e^2)
    assert bound.by_epsilon(Decimal(0), Decimal("0.0101"), 3) == 5152  # (1 + 3 x .0101) / 2


@pytest.mark.parametrize("runs", [20, 100, 333])
def test_the_worst_mechanism_is_refuted_at_most_as_often_as_the_level(runs):
    """Exact: guesses that are right with just the chance that is claimed; one fewer would be refuted too often."""
    for claimed in (5000, 7311, 8415, 9900):
        p = claimed / 10_000
        law = [comb(runs, at) * p**at * (1 - p) ** (runs - at) for at in range(runs + 1)]
        for right in range(runs + 1):
            assert bound.is_unlikely(right, runs, claimed) == (sum(law[right:]) < 1 / 20)


# ---- what it catches -------------------------------------------------------------------------------------------------

FEW = {
    "forest": {"trees": 8, "depth": 3},
    "ebm": {"epochs": 4},
    "lazybb": {"rounds": 10},
    "lazybb-tree": {"rounds": 10},
    "bdpe": {"rounds": 8},
}


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("learner", "parameters"), [("forest", {"trees": 8, "depth": 3}), ("lazybb", {"rounds": 25})])
def test_half_of_the_noise_is_caught_and_sound_noise_is_not(learner, parameters):
    """Real fits with the noise that is priced and with half of it. False alarms: sound guesses four deviations above
    the claim, 4e-5; half of it not caught, by the .91 of guesses that were measured, 1e-5.
    """
    of, runs = canaries.target(learner, "1", **parameters), 400
    claimed = bound.ceiling(of.plan, Decimal(1), DELTA)
    chance = claimed / 10_000
    assert canaries.run(of, runs, halved=False) <= runs * chance + 4 * (runs * chance * (1 - chance)) ** 0.5
    assert bound.is_unlikely(canaries.run(of, runs, halved=True), runs, claimed)


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
