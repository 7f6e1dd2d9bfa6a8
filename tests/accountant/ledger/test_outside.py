"""What was released elsewhere is charged here: every account that it may have read, for good, within the total."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import exp, log

import pytest
from crash_driver import die_at
from ledgers import TOTAL, changed, hexes, place, registration, request, reserve

from accountant.audit.audit import audit_home
from accountant.errors import EntryRefused, NameTaken, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.records import Unit, Why
from accountant.ledger.outside import Outside, charge, charged_entries, describe_charges, rehearse
from accountant.ledger.withdrawal import withdraw
from dpserve_verify.audit.replay import Replay
from dpserve_verify.errors import BudgetRefused, InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.filter import Filter
from dpserve_verify.privacy.outside import NO_BOUND, Curve

WHY = Why("steward", "the table of last year")
PEOPLE = Unit("person", "name", 4)
ORDERS = (Decimal("8.9"), Decimal("17.8"), Decimal("35.6"))
CURVES = (
    {"epsilon": "0.2"},
    {"rho": "0.01"},
    {"mu": "0.2"},
    {"renyi": {"9": "0.1", "18": "0.2", "36": "0.4"}},
    {"epsilon": "0.2", "delta": "0"},
    {"epsilon": "0.2", "renyi": {"9": "0.01", "18": "0.02"}},
)


def outside(stated=CURVES[0], document="a census table", **changes) -> Outside:
    fields = {"document": document and hexes(document), "mechanism": "discrete Gaussian table"} | changes
    return Outside(Curve.read(stated), why=WHY, **fields)


def problems(home: Home) -> list[str]:
    return [*audit_home(Home.open(place(home.path))).problems]


@pytest.mark.parametrize("stated", CURVES)
def test_a_charge_stays_in_the_sums_beside_those_of_jobs_and_the_audit_agrees(begun, stated):
    home = begun(registration())
    before = home.ledger.dataset("adult").families[0]
    reserve(home.ledger, request("adult", "0.5"))
    job = home.ledger.dataset("adult").families[0]
    seq = charge(home.ledger, "adult", outside(stated))
    stands = home.ledger.dataset("adult").families[0]
    expected = Curve.read(stated).price(stands.filter.orders)
    assert stands.used - job.used == expected
    assert before.used == stands.filter.nothing()
    assert stands.reserved == job.reserved
    assert stands.share > job.share
    entry = home.ledger.log.entry(seq).value
    assert entry["type"] == "charged"
    assert entry["document"] == hexes("a census table")
    assert problems(home) == []


def test_a_plan_leaves_what_the_charge_leaves_and_the_charges_are_listed_with_their_share(begun):
    home = begun(registration())
    reserve(home.ledger, request("adult", "0.5"))
    nothing = describe_charges(home.ledger, home.ledger.dataset("adult"))
    assert nothing == {
        "count": 0,
        "share": "0.000000",
        "words": "no releases made elsewhere: 0 % of the budget",
        "listed": [],
    }
    size, first = home.ledger.log.size(), outside({"rho": "0.02"})
    planned = rehearse(home.ledger, "adult", first)
    assert home.ledger.log.size() == size
    seq = charge(home.ledger, "adult", first)
    dataset = home.ledger.dataset("adult")
    assert planned == dataset
    charge(home.ledger, "adult", outside({"rho": "0.03"}, document=None))
    with pytest.raises(NameTaken):
        rehearse(home.ledger, "adult", first)
    with pytest.raises(BudgetRefused):
        rehearse(home.ledger, "adult", outside({"rho": "5"}, document="more"))
    dataset = home.ledger.dataset("adult")
    charges, family = describe_charges(home.ledger, dataset), dataset.families[0]
    assert charges["count"] == 2
    assert charges["share"] == f"{family.share_of(Curve.read({'rho': '0.05'}).price(family.filter.orders)):.6f}"
    assert charges["words"].startswith("2 releases made elsewhere: ")
    newest, oldest = charges["listed"]
    assert (newest["words"], "document" in newest) == ("rho 0.03", False)
    expected = {"entry": seq, "by": "steward", "document": hexes("a census table"), "unit": "record"}
    assert {name: oldest[name] for name in expected} == expected


def test_each_kind_of_curve_comes_to_what_its_definition_gives():
    order = ORDERS[0]
    (figure, *_) = Curve.read({"rho": "0.1"}).price(ORDERS).rdp
    assert figure == Fraction("0.89") * 10**9
    assert Curve.read({"mu": "0.2"}).price(ORDERS).rdp[0] == Fraction("0.178") * 10**9
    e, a = 0.2, float(order)
    p = exp(e) / (1 + exp(e))
    exact = log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
    pure = Curve.read({"epsilon": "0.2"}).price(ORDERS)
    assert pure.pure == 200_000_000
    assert pure.unbounded == 0
    assert exact * 10**9 <= pure.rdp[0] <= exact * 10**9 + 2
    curve = Curve.read({"renyi": {"8": "0.1", "9": "0.12", "20": "0.3000000001"}}).price(ORDERS)
    assert (curve.unbounded, curve.rdp) == (1, (120_000_000, 300_000_001, NO_BOUND))


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({}, "none stated"),
        ({"epsilon": "-1"}, "must be > 0"),
        ({"epsilon": "0"}, "must be > 0"),
        ({"rho": "nan"}, "finite"),
        ({"mu": "inf"}, "finite"),
        ({"epsilon": "1e308"}, "finite number"),
        ({"rho": "101"}, "at most 100"),
        ({"epsilon": "0.2", "delta": "1"}, "below 1"),
        ({"epsilon": "0.2", "delta": "-1e-9"}, "at least 0"),
        ({"epsilon": "0.2", "delta": "nan"}, "finite"),
        ({"epsilon": "0.2", "delta": "1e-31"}, "at least 1e-30"),
        ({"renyi": {"2": "0.1"}, "epsilon": "0.2", "delta": "1e-9"}, "stands beside an epsilon alone"),
        ({"delta": "1e-9"}, "stands beside an epsilon alone"),
        ({"rho": "0.2", "delta": "0"}, "stands beside an epsilon alone"),
        ({"rho": "0.1", "epsilon": "0.2"}, "two stated"),
        ({"renyi": {}}, "1 to 1000 orders"),
        ({"renyi": {"1": "0.1"}}, "above 1"),
        ({"renyi": {"2": "0"}}, "above 0"),
        ({"renyi": {"2": "-0.1"}}, "above 0"),
        ({"renyi": {"2": "0.1", "2.0": "0.2"}}, "stands twice"),
        ({"renyi": [2, 3]}, "1 to 1000 orders"),
    ],
)
def test_what_is_no_curve_is_refused_with_what_is_wrong(stated, problem):
    with pytest.raises(InputError, match=problem):
        Curve.read(stated)


def test_more_than_is_left_is_refused_with_what_fits_and_nothing_is_written(begun):
    home = begun(registration())
    size = home.ledger.log.size()
    for stated in ({"epsilon": "40"}, {"rho": "5"}, {"mu": "9"}, {"renyi": {"200": "90"}}):
        with pytest.raises(BudgetRefused, match="does not fit") as refusal:
            charge(home.ledger, "adult", outside(stated))
        fits = refusal.value.details["would_fit"]
        assert (fits is None) is ("renyi" in stated)
        if fits:
            ((kind, number),) = fits.items()
            assert fits_now(home, fits)
            assert not fits_now(home, {kind: str(Decimal(number) * Decimal("1.02"))})
    assert home.ledger.log.size() == size


def fits_now(home: Home, stated) -> bool:
    dataset = home.ledger.dataset("adult")
    return dataset.refusing(dataset.costs_of(Curve.read(stated).price(dataset.orders))) is None


def test_a_charge_reads_every_part_block_and_family_that_the_release_may_have_read(begun):
    home = begun(registration("visits", unit=PEOPLE, person=Budget.of("9", "0.000001"), holdout=Decimal("0.2")))
    home.ledger.register(registration("payroll", unit=PEOPLE))
    home.ledger.register(registration("both", None, unit=PEOPLE, families=("payroll",)))
    whole = outside(unit="person")
    charge(home.ledger, "both", whole)
    assert home.ledger.dataset("payroll").families[0].share > 0
    charge(home.ledger, "visits", whole)
    for part in (None, "holdout"):
        accounts = home.ledger.dataset("visits", part=part).families
        assert len(accounts) == 2
        assert all(account.share > 0 for account in accounts)
    block_appending.append(home.ledger.log, NewBlock("visits", hexes("more"), 1000, "steward"), 2)
    with pytest.raises(InputError, match="blocks: which"):
        charge(home.ledger, "visits", replace(whole, document=hexes("later")))
    charge(home.ledger, "visits", replace(whole, document=hexes("later"), blocks="2"))
    charge(home.ledger, "visits", replace(whole, document=hexes("last"), blocks="all"))
    for part in (None, "holdout"):
        first, second, person = home.ledger.dataset("visits", part=part, blocks="all").families
        assert first.used == second.used
        assert person.used.pure == 3 * 200_000_000
    block_appending.drop(home.ledger.log, "visits", 1, Why("steward", "kept for a year"))
    charge(home.ledger, "visits", replace(whole, document=hexes("late"), blocks="1"))  # it has an account all the same
    with pytest.raises(InputError, match="has blocks 1 to 2"):
        charge(home.ledger, "visits", replace(whole, document=hexes("never"), blocks="1-3"))
    for part in (None, "holdout"):
        first, second, person = home.ledger.dataset("visits", part=part, blocks=(1, 2)).families
        assert first.used.pure == second.used.pure + 200_000_000
        assert person.used.pure == 4 * 200_000_000
    assert problems(home) == []


def test_a_curve_of_another_unit_is_refused_or_becomes_that_of_a_person_s_rows(begun):
    home = begun(registration())
    home.ledger.register(registration("visits", unit=PEOPLE))
    with pytest.raises(InputError, match="protects one record"):
        charge(home.ledger, "adult", outside(unit="person"))
    with pytest.raises(InputError, match="--contributions N"):
        charge(home.ledger, "visits", outside())
    with pytest.raises(InputError, match="leave it out"):
        charge(home.ledger, "visits", outside(unit="person", contributions=2))
    with pytest.raises(InputError, match="a Renyi curve of one record"):
        charge(home.ledger, "visits", outside(CURVES[3], contributions=2))
    for at, (stated, multiple) in enumerate([({"epsilon": "0.02"}, 3), ({"rho": "0.001"}, 9), ({"mu": "0.02"}, 9)]):
        used = home.ledger.dataset("visits").families[0].used
        charge(home.ledger, "visits", outside(stated, document=f"{at}", contributions=3))
        now = home.ledger.dataset("visits").families[0]
        one = Curve.read(stated).price(now.filter.orders)
        if "epsilon" in stated:
            assert (now.used - used).pure == 3 * one.pure
        else:
            assert (now.used - used).rdp[0] == multiple * one.rdp[0]
    assert problems(home) == []


@pytest.mark.parametrize("kind", ["epsilon", "rho", "mu"])
def test_a_cost_with_too_many_decimals_is_told_rounded_up(kind):
    """A hint that was followed would else say less than was spent."""
    with pytest.raises(InputError, match="at most 9 decimals; rounded up: 0.000000002"):
        Curve.read({kind: "0.0000000015"})
    with pytest.raises(InputError, match="at most 9 decimals; rounded down: 0.000000001"):
        Budget.of("0.0000000015")


def test_the_same_release_is_charged_twice_where_it_is_said_to_be_another_alone(begun):
    home = begun(registration())
    home.ledger.register(registration("other"))
    for document in ("a", None):
        charge(home.ledger, "adult", outside(document=document))
        with pytest.raises(NameTaken, match="was charged before, as entry"):
            charge(home.ledger, "adult", outside(document=document))
        charge(home.ledger, "other", outside(document=document))  # another dataset's people
        charge(home.ledger, "adult", outside(document=document, another=True))
    charge(home.ledger, "adult", outside({"epsilon": "0.3"}, document=None))  # another curve, with no document
    points = {"2": "0.01", "8": "0.02", "32": "0.03", "1.5": "0.005"}  # as texts, 32 stands before 8
    charge(home.ledger, "adult", outside({"renyi": points}, document=None))
    for order in (points, dict(sorted(points.items())), dict(reversed(points.items()))):
        with pytest.raises(NameTaken, match="was charged before, as entry"):
            charge(home.ledger, "adult", outside({"renyi": order}, document=None))
    charge(home.ledger, "adult", outside({"renyi": points}, document=None, another=True))
    assert problems(home) == []
    with pytest.raises(UnknownName):
        charge(home.ledger, "nope", outside())
    with pytest.raises(WrongState, match="release made elsewhere was charged"):
        withdraw(home.ledger, "other", WHY)


@pytest.mark.parametrize("changes", [{"mechanism": ""}, {"mechanism": "x\ny"}, {"document": "AB"}, {"unit": "house"}])
def test_what_a_charge_may_not_say(changes):
    with pytest.raises(InputError):
        replace(outside(), **changes)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"curve": {"rho": "0.2"}}, "price"),
        ({"curve": {"epsilon": "0.20"}}, "one form"),
        ({"price": None}, "price"),
        ({"another": True}, "another: the same was not charged before"),
        ({"document": "x"}, "document"),
        ({"unit": "person"}, "unit: must be record"),
        ({"contributions": 2}, "contributions"),
        ({"mechanism": " "}, "mechanism"),
        ({"dataset": "nope"}, "no such dataset"),
    ],
)
def test_the_auditor_believes_no_charge(begun, fields, problem):
    home = begun(registration(budget=TOTAL))
    charge(home.ledger, "adult", outside({"rho": "0.1"}))
    replay, leaves = Replay(home.trust), home.ledger.log.entries()
    for entry in leaves[:-1]:
        replay.read(entry.seq, entry.body)
    with pytest.raises(LedgerInvalid, match=problem):
        replay.read(leaves[-1].seq, changed(leaves[-1].body, **fields))


@pytest.mark.parametrize("stated", CURVES)
@pytest.mark.parametrize("halved", ["pure", "rdp"])
def test_the_auditor_finds_half_a_price(begun, stated, halved):
    home = begun(registration())
    charge(home.ledger, "adult", outside(stated))
    replay, leaves = Replay(home.trust), home.ledger.log.entries()
    for entry in leaves[:-1]:
        replay.read(entry.seq, entry.body)
    price = leaves[-1].value["price"]
    half = {order: f"{Decimal(figure) / 2:.9f}".rstrip("0").rstrip(".") for order, figure in price["rdp"].items()}
    low = price | ({"rdp": half} if halved == "rdp" else {"pure": "0.1", "unbounded": 0})
    with pytest.raises(LedgerInvalid, match="at some order" if halved == "rdp" else "pure sum"):
        replay.read(leaves[-1].seq, changed(leaves[-1].body, price=low))


def test_an_overspent_charge_is_not_written(begun, monkeypatch):
    from accountant.ledger.families.families import Dataset

    home = begun(registration())
    monkeypatch.setattr(Dataset, "refusing", lambda *_: None)
    with pytest.raises(EntryRefused, match="is exceeded"):
        charge(home.ledger, "adult", outside({"epsilon": "50"}))
    assert not problems(home)


APART = Budget.of("3", "0.000001", "0.0000001")
WITH_DELTA = {"epsilon": "0.1", "delta": "0.00000006"}


def test_a_delta_is_paid_from_what_is_set_apart_and_no_criterion_counts_on_that(begun):
    home = begun(registration(budget=APART))
    design = home.ledger.dataset("adult").families[0].filter
    plain = Budget.of("3", "0.000001")
    assert design.orders == Filter.design(plain).orders
    assert all(less.cap < more.cap for less, more in zip(design.criteria, Filter.design(plain).criteria, strict=True))
    assert sum(line.weight for line in design.criteria) * APART.delta + APART.outside <= APART.delta
    home.ledger.register(registration("copy", None, families=("adult",)))
    seq = charge(home.ledger, "adult", outside(WITH_DELTA))
    family = home.ledger.dataset("adult").families[0]
    assert family.used == Curve.read({"epsilon": "0.1"}).price(design.orders)
    assert home.ledger.log.entry(seq).value["delta"] == "0.00000006"
    size = home.ledger.log.size()
    for name in ("adult", "copy"):  # one family
        with pytest.raises(
            BudgetRefused, match="of 1e-7 set apart for releases made elsewhere, 6e-8 is spent; state its"
        ):
            charge(home.ledger, name, outside({"epsilon": "0.1", "delta": "0.000000041"}, document="more"))
    assert home.ledger.log.size() == size
    charge(home.ledger, "copy", outside({"epsilon": "0.1", "delta": "0.00000004"}, document="more"))
    described = describe_charges(home.ledger, home.ledger.dataset("adult"))
    assert described["delta"] == {"apart": "0.0000001", "spent": "0.0000001"}
    home.ledger.change_budget("adult", Decimal("4"), "a board", "steward")
    assert home.ledger.dataset("adult").families[0].budget == replace(APART, epsilon=Decimal("4"))
    reserve(home.ledger, request("adult", "0.5"))
    assert problems(home) == []


def test_where_nothing_is_set_apart_or_a_person_s_total_sets_nothing_a_delta_is_refused_with_what_to_state(begun):
    home = begun(registration())
    home.ledger.register(registration("visits", APART, unit=PEOPLE, person=Budget.of("9", "0.000001")))
    for name, unit in (("adult", "record"), ("visits", "person")):
        with pytest.raises(InputError, match=r"at registration \(--delta-outside\); state its noise \(dpserve charge"):
            charge(home.ledger, name, outside(WITH_DELTA, unit=unit))
    for wrong in ("0.000001", "0.000002"):
        with pytest.raises(InputError, match="delta-outside=.*must be below delta"):
            Budget.of("3", "0.000001", wrong)
    with pytest.raises(InputError, match="delta-outside"):
        Budget.of("3", "0", "0.0000001")


def test_records_of_one_person_multiply_the_delta_and_a_total_founded_later_has_the_same_part(begun):
    home = begun(registration("visits", APART, unit=PEOPLE))
    seq = charge(home.ledger, "visits", outside({"epsilon": "0.1", "delta": "0.00000001"}, contributions=3))
    exact = 3 * Decimal("0.2").exp() * Decimal("0.00000001")
    assert exact <= Decimal(home.ledger.log.entry(seq).value["delta"]) <= exact * (1 + Decimal("1e-9"))
    block_appending.append(home.ledger.log, NewBlock("visits", hexes("more"), 1000, "steward"), 2)
    assert home.ledger.dataset("visits", blocks="2").person.budget == APART
    later = outside({"epsilon": "0.1", "delta": "0.00000007"}, document="later", unit="person", blocks="2")
    with pytest.raises(BudgetRefused, match="set apart"):  # the person was in block 1 too
        charge(home.ledger, "visits", later)
    charge(home.ledger, "visits", replace(later, curve=Curve.read({"epsilon": "0.1", "delta": "0.00000006"})))
    assert problems(home) == []


def test_the_auditor_believes_no_delta(begun):
    home = begun(registration("visits", APART, unit=PEOPLE))
    for document in ("one", "two"):
        stated = {"epsilon": "0.1", "delta": "0.00000001"}
        charge(home.ledger, "visits", outside(stated, document=document, contributions=3))
    for fields, problem in (
        ({"delta": "0.00000003"}, "below that of as many"),
        ({"delta": "0.00000009"}, "of 0.0000001 set apart for releases made elsewhere, 0.000000126"),
        ({"curve": {"epsilon": "0.1"}}, "must stand where"),
    ):
        replay, leaves = Replay(home.trust), home.ledger.log.entries()
        for entry in leaves[:-1]:
            replay.read(entry.seq, entry.body)
        with pytest.raises(LedgerInvalid, match=problem):
            replay.read(leaves[-1].seq, changed(leaves[-1].body, **fields))
    first = home.ledger.log.entries()[1]
    for total in ({"epsilon": "3", "delta": "0.000001"}, {**APART.to_entry(), "outside": "0.0000002"}):
        replay, genesis = Replay(home.trust), home.ledger.log.entries()[0]
        replay.read(genesis.seq, genesis.body)
        with pytest.raises(LedgerInvalid, match="filter: is not the one"):
            replay.read(first.seq, changed(first.body, budget=total))


def test_charges_with_a_delta_and_jobs_up_to_the_total_keep_it_exactly():
    """Pure jobs (randomized response) and one charge of all that is set apart, up to what the filter admits: the exact
    delta of the worst releases with these prices, at the total's epsilon, is within the total.
    """
    total = Budget.of("1", "0.01", "0.004")
    design, job = Filter.design(total), Curve.read({"epsilon": "0.05"}).price(Filter.design(total).orders)
    outer = Curve.read({"epsilon": "0.1", "delta": "0.004"})
    used, count = outer.price(design.orders), 0
    while design.admits(used, job):
        used, count = used + job, count + 1
    assert count > 18  # more than pure sums alone admit
    losses = {Fraction(0): 1.0}
    for epsilon in [0.1, *[0.05] * count]:
        step = Fraction(str(epsilon))
        high, moved = exp(epsilon) / (1 + exp(epsilon)), dict[Fraction, float]()
        for loss, chance in losses.items():
            moved[loss + step] = moved.get(loss + step, 0) + chance * high
            moved[loss - step] = moved.get(loss - step, 0) + chance * (1 - high)
        losses = moved
    fails = sum(chance * max(0.0, 1 - exp(1 - float(loss))) for loss, chance in losses.items())
    exact = 0.004 + (1 - 0.004) * fails
    assert 0.004 < exact <= float(total.delta)


KILLED_AT = (
    "accountant.ledger.families.block_rows:load:after:1",  # read, and nothing judged
    "accountant.ledger.families.block_rows:put:before:1",  # judged
    "accountant.ledger.families.block_rows:put:after:1",
    "accountant.log.entries:Writer.append:before:1",
    "accountant.log.entries:Writer.append:after:1",
    "accountant.log.entries:TransparencyLog.raise_mark:before:1",  # committed
)


def test_a_charge_that_is_killed_anywhere_stands_whole_or_not_at_all_and_is_made_once(tmp_path):
    home = Home.init(place(tmp_path / "home"))
    home.ledger.register(registration(holdout=Decimal("0.2")))
    cost = Curve.read(CURVES[1]).price(home.ledger.dataset("adult").orders)
    for at, point in enumerate(KILLED_AT):
        release, before = outside(CURVES[1], document=point), home.ledger.dataset("adult").families[0].used
        home.ledger.log.database.close()
        child = os.fork()
        if not child:
            die_at(point)
            charge(Home.open(place(home.path)).ledger, "adult", release)
            os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        home = Home.open(place(home.path))
        stands = len(charged_entries(home.ledger)) > at
        assert stands is (point == KILLED_AT[-1])
        for part in (None, "holdout"):
            assert home.ledger.dataset("adult", part=part).families[0].used == (before + cost if stands else before)
        with pytest.raises(NameTaken) if stands else nullcontext():
            charge(home.ledger, "adult", release)
        assert home.ledger.dataset("adult").families[0].used == before + cost
    assert problems(home) == []
