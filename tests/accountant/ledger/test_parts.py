"""The two accounts of a family that keeps units aside: one total each, charged apart, by the ledger and the audit."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from ledgers import advance, hexes, plan, registration, request, reserve

from accountant.audit.audit import audit_home
from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger import evaluations, model_names
from accountant.ledger.families.job_kinds import Evaluation
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import HOLDOUT, Unit
from dpserve_verify.errors import BudgetRefused, InputError, LedgerInvalid
from dpserve_verify.keys.trust import fingerprint
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import PureDp

PURE = plan(PureDp(Decimal("0.1")), 10)  # epsilon 1 in all
KEPT = Decimal("0.2")


@pytest.fixture
def home(begun) -> Home:
    return begun(registration(budget=Budget.of("2"), unit=Unit("person", "name"), holdout=KEPT))


def trained(home: Home) -> int:
    """A certified model; the entry that certifies it."""
    job = reserve(home.ledger, request("adult", "1", "0"), PURE)
    advance(home.ledger, job.seq, "issued")
    return home.ledger.job(job.seq).issued


def evaluation(certified: int, against: int | None = None, **more):
    kind = Evaluation(certified, against)
    return replace(request("adult", "1", "0"), **({"kind": kind, "part": HOLDOUT} | more))


def finish(home: Home, seq: int) -> int:
    signed_by = fingerprint(home.keys.public_key("issuer"))
    advance(home.ledger, seq, "committed")
    return evaluations.enter(home.ledger.log, seq, hexes(f"worth {seq}"), signed_by)


def sound(home: Home) -> bool:
    found = audit_home(home)
    assert found.ok, found.problems
    return True


def spent(home: Home, part: str | None = None) -> str:
    return describe_budget(home.ledger.dataset("adult", part=part))["spent"]["epsilon"]


def test_each_part_has_the_whole_total_and_is_charged_alone(home):
    """Two jobs of epsilon 1 fill each account of 2: the family's loss is the larger of them, not 4."""
    certified = trained(home)
    trained(home)
    assert (spent(home), spent(home, HOLDOUT)) == ("2", "0")
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, request("adult", "1", "0", again="yes"), PURE)
    for number in range(2):
        seq = reserve(home.ledger, replace(evaluation(certified), parameters={"number": number}), PURE).seq
        assert finish(home, seq) == home.ledger.job(seq).issued
    assert (spent(home), spent(home, HOLDOUT)) == ("2", "2")
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, evaluation(certified), PURE)
    with pytest.raises(BudgetRefused):  # on the rows that were learnt from: the other account
        reserve(home.ledger, evaluation(certified, part=None), PURE)
    assert sound(home)


def test_totals_quotas_and_what_is_given_back_hold_for_each_part(home):
    certified = trained(home)
    home.ledger.set_quota("adult", "test", Decimal("0.6"), "a test", "steward")
    seq = reserve(home.ledger, evaluation(certified), PURE).seq
    with pytest.raises(BudgetRefused):  # 1 of 1.2 is used in this part; in the other as well
        reserve(home.ledger, replace(evaluation(certified), parameters={}), PURE)
    home.ledger.release(seq)
    assert (spent(home), spent(home, HOLDOUT)) == ("1", "0")
    assert sound(home)
    seq = reserve(home.ledger, evaluation(certified), PURE).seq
    home.ledger.change_budget("adult", Decimal("0.5"), "lowered", "steward")
    with pytest.raises(BudgetRefused):  # it is given back: beside nothing, 1 does not fit into 0.5
        home.ledger.start(seq, "owner:1:1", 60.0)
    assert home.ledger.dataset("adult", part=HOLDOUT).budget.epsilon == Decimal("0.5")
    assert home.ledger.job(seq).state == "released"
    assert sound(home)


def test_the_whole_of_one_part_closes_that_part_alone(home):
    certified = trained(home)
    whole = replace(evaluation(certified), budget=Budget.of("2"), part=HOLDOUT)
    seq = reserve(home.ledger, whole, plan(PureDp(Decimal("0.1")), 20)).seq
    finish(home, seq)
    assert trained(home)
    assert sound(home)


def test_what_is_no_evaluation_of_a_certified_model_is_refused(home):
    certified = trained(home)
    with pytest.raises(InputError, match="no certificate was issued"):
        reserve(home.ledger, evaluation(certified - 1), PURE)
    with pytest.raises(InputError, match="certifies adult"):
        reserve(home.ledger, replace(evaluation(certified), model="other"), PURE)
    with pytest.raises(InputError, match="is the model itself"):
        reserve(home.ledger, evaluation(certified, certified), PURE)
    with pytest.raises(InputError, match="no certificate was issued"):
        reserve(home.ledger, evaluation(certified, 0), PURE)
    seq = reserve(home.ledger, evaluation(certified), PURE).seq
    advance(home.ledger, seq, "committed")
    with pytest.raises(WrongState, match="another entry ends it"):
        home.ledger.issue(seq, hexes("statement"), hexes("model"))
    home.ledger.register(registration("plain", Budget.of("2")))
    with pytest.raises(InputError, match="no rows of this family are kept aside"):
        reserve(home.ledger, replace(evaluation(certified), dataset="plain"), PURE)


def test_a_job_and_the_evaluation_of_what_it_makes_are_reserved_together_or_not_at_all(home):
    """Charged both before a row is read; what comes to nothing takes its evaluation back with it, and none can start
    before there is a model.
    """
    what = evaluation(0), Decimal("0.1"), PURE
    together = lambda **more: reserve(home.ledger, request("adult", "1", "0", **more), PURE, evaluation=what)  # noqa: E731
    burned = together()
    assert (spent(home), spent(home, HOLDOUT)) == ("0", "0")
    assert describe_budget(home.ledger.dataset("adult", part=HOLDOUT))["reserved"]["epsilon"] == "1"
    then = evaluations.following
    with home.ledger.log.database.reading() as connection:
        follows = then(connection, burned.seq).seq
        assert then(connection, follows) is None
    with pytest.raises(WrongState, match="has made no model yet"):
        home.ledger.start(follows, "owner:1:1", 60.0)
    advance(home.ledger, burned.seq, "burned")
    assert (home.ledger.job(follows).state, spent(home), spent(home, HOLDOUT)) == ("released", "1", "0")
    given = together(again="1")
    home.ledger.release(given.seq)
    assert home.ledger.job(given.seq + 1).state == "released"
    made = together(again="2")
    advance(home.ledger, made.seq, "issued")
    finish(home, made.seq + 1)
    certified = home.ledger.job(made.seq).issued
    assert evaluations.by_model(home.ledger.log.database) == {certified: [made.seq + 1]}
    assert evaluations.find_same(home.ledger.log.database, evaluation(certified)) == made.seq + 1
    size = home.ledger.log.size()
    home.ledger.change_budget("adult", Decimal("3"), "room for training", "steward")
    big = replace(evaluation(0), budget=Budget.of("3")), Decimal("0.1"), plan(PureDp(Decimal("0.1")), 25)
    with pytest.raises(BudgetRefused):  # the evaluation does not fit beside 1 of 3: nothing of either is kept
        reserve(home.ledger, request("adult", "1", "0", again="3"), PURE, evaluation=big)
    assert home.ledger.log.size() == size + 1
    with pytest.raises(InputError):  # nobody else's reservation
        reserve(home.ledger, evaluation(made.seq), PURE)
    assert sound(home)
    _judged(home, made.seq)


def _judged(home: Home, seq: int) -> None:
    """The auditor by itself: what stands with a job is of that job, and starts after it."""
    import json

    from dpserve_verify.audit.replay import Replay
    from dpserve_verify.formats import canonical

    log = home.ledger.log
    values = [json.loads(log.entry(number).body) for number in range(log.size())]
    starts = next(at for at, each in enumerate(values) if each["type"] == "started" and each["reservation"] == seq + 1)
    issued = next(at for at, each in enumerate(values) if each["type"] == "issued" and each["reservation"] == seq)
    swapped = [*values[:issued], values[starts], *values[issued:]]

    def read(entries, **changed) -> None:
        replay = Replay(home.trust)
        for number, value in enumerate(entries):
            replay.read(number, canonical.encode({**value, **(changed if number == seq + 1 else {})}))

    read(values)
    for entries, changed, problem in (
        (swapped, {}, "has made no model to evaluate"),
        (values, {"evaluates": seq - 3}, "reserved just before|certified model"),
        (values, {"model": "other"}, "must be adult"),
    ):
        with pytest.raises(LedgerInvalid, match=problem):
            read(entries, **changed)


def test_families_with_parts_are_joined_by_those_who_name_their_people(home):
    home.ledger.register(registration("more", None, unit=Unit("person", "name"), families=("adult",)))
    assert home.ledger.dataset("more").holdout == KEPT
    home.ledger.register(registration("other", Budget.of("2"), unit=Unit("person", "name")))
    with pytest.raises(InputError, match="a key of its own"):
        home.ledger.register(registration("both", None, unit=Unit("person", "name"), families=("adult", "other")))
    with pytest.raises(InputError, match="declared where it is founded"):
        registration("late", None, families=("adult",), holdout=KEPT)
    assert sound(home)


def test_the_auditor_refuses_what_the_ledger_would(home):
    """Entries that no ledger of ours writes, read by the auditor alone."""
    from dpserve_verify.audit.replay import Replay

    certified = trained(home)
    other = trained(home)
    seq = reserve(home.ledger, evaluation(certified), PURE).seq
    worth = finish(home, seq)
    paired = reserve(home.ledger, evaluation(certified, other), PURE).seq
    promoted = model_names.record(home.ledger, model_names.PROMOTED, "adult", 1, certified, "why", "ann", worth=worth)
    log = home.ledger.log
    with log.database.reading():
        bodies = [log.entry(number).body for number in range(log.size())]
    import json

    from dpserve_verify.formats import canonical

    def read(change) -> None:
        replay = Replay(home.trust)
        for number, body in enumerate(bodies):
            value = json.loads(body)
            replay.read(number, canonical.encode({**value, **change(number, value)}))

    read(lambda number, value: {})
    for kind, change, problem in (
        ("reserved", {"part": "holdout"}, "evaluations and profiles alone"),
        ("dataset-registered", {"holdout": "1"}, "holdout"),
        ("dataset-registered", {"holdout": "0.20"}, "holdout"),
        ("evaluated", {"model": hexes("another")}, "model: must be that of entry"),
        ("evaluated", {"name": "another"}, "name"),
    ):
        first = next(number for number, body in enumerate(bodies) if json.loads(body)["type"] == kind)
        with pytest.raises(LedgerInvalid, match=problem):
            read(lambda number, value, first=first, change=change: change if number == first else {})
    for number, change, problem in (
        (paired, {"against": certified}, "another model"),
        (paired, {"against": seq}, "must be a certified model"),
        (paired, {"against": other + 1}, "must be a certified model"),
        (promoted, {"worth": other}, "must be a statement"),
        (promoted, {"issued": other}, "must be a statement"),
    ):
        with pytest.raises(LedgerInvalid, match=problem):
            read(lambda at, value, number=number, change=change: change if at == number else {})
    with pytest.raises(LedgerInvalid, match="digest"):  # whom it is compared with is part of what was asked
        read(lambda at, value: {"evaluates": other, "against": certified} if at == paired else {})
    with pytest.raises(LedgerInvalid):  # without the account of its own, the part is none
        read(lambda number, value: {"part": "training"} if number == seq else {})
