"""Families, quotas and totals: people share one budget, whatever tables hold their rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import exact_laws
import ledgers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import advance, place, plan, registration, request, reserve
from sqlalchemy import delete

from accountant.audit.audit import audit_home
from accountant.errors import NameTaken, UnknownName
from accountant.home import Home
from accountant.ledger import forecast as forecasts
from accountant.ledger.admission import charges
from accountant.ledger.families.left import describe_budget, families_of, left
from accountant.ledger.families.records import Unit
from accountant.ledger.forecast import forecast
from accountant.privacy.claims import claim
from accountant.store.tables import dataset_table
from dpserve_verify.audit.replay_budget import Books
from dpserve_verify.errors import BudgetRefused, InputError, LedgerInvalid
from dpserve_verify.privacy.budget import NANO, Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Gaussian, PureDp
from dpserve_verify.privacy.filter import Filter
from dpserve_verify.privacy.renyi import epsilon_at
from training.learners import LEARNERS

PEOPLE = Unit("person", "name")
PURE = plan(PureDp(Decimal("0.1")), 10)  # epsilon 1 in all


@pytest.fixture
def home(begun) -> Home:
    return begun(registration(unit=PEOPLE))


def found(home: Home, name: str, epsilon: str = "1") -> None:
    home.ledger.register(registration(name, Budget.of(epsilon), unit=PEOPLE))


def join(home: Home, name: str, *others: str, **changes) -> None:
    home.ledger.register(registration(name, None, families=others, **({"unit": PEOPLE} | changes)))


def test_a_family_has_a_name_and_shows_its_members(home):
    """That of its first dataset, as of every family of old ledgers, or the one that was given."""
    found(home, "first")
    join(home, "copy", "first")
    home.ledger.register(replace(registration("ward", Budget.of("1"), unit=PEOPLE), family_name="hospital"))
    join(home, "both", "copy", "ward")
    rows = [(row.family.name, [*row.names]) for row in families_of(home.ledger.datasets())]
    assert rows == [("adult", ["adult"]), ("first", ["both", "copy", "first"]), ("hospital", ["both", "ward"])]
    assert [home.ledger.member(name) for name in ("copy", "hospital")] == ["copy", "ward"]
    with pytest.raises(UnknownName, match="no such dataset or family"):
        home.ledger.member("nobody")
    for name, called in (("hospital", None), ("other", "first"), ("other", "hospital")):
        with pytest.raises(NameTaken, match="another family's name"):
            home.ledger.register(replace(registration(name, Budget.of("1"), unit=PEOPLE), family_name=called))
    bodies = [entry.value for entry in home.ledger.log.entries() if entry.value["type"] == "dataset-registered"]
    assert ["family_name" in body for body in bodies] == [False, False, True]
    join(home, "hospital", "first")  # a dataset of other people than the family of this name
    with pytest.raises(InputError, match="is a dataset's name, and that of a family of others"):
        home.ledger.member("hospital")
    assert home.ledger.member("first") == "first"
    assert audit_home(home).problems == ()
    for changes, said in (
        ({"dataset": "x", "family_name": "first"}, "another family's name"),
        ({"dataset": "hospital"}, "another family's name"),
        ({"dataset": "x", "family_name": "x"}, "needless"),
    ):
        books = Books()
        for body in bodies:
            books.judge_registered(1, body)
        fresh = {"uuid": "u", "family": "u", "commitment": ledgers.hexes("new")}
        forged = {name: value for name, value in bodies[0].items() if name != "family_name"} | fresh | changes
        with pytest.raises((LedgerInvalid, InputError), match=said):
            books.judge_registered(9, forged)


def test_one_more_job_of_rows_of_two_families_fits_into_both_and_into_the_quota(home):
    found(home, "rich", "3")
    found(home, "poor", "1")
    join(home, "both", "rich", "poor")
    at = Decimal(0)
    assert [left(home.ledger.dataset(name), at).job.epsilon for name in ("rich", "poor", "both")] == [3, 1, 1]
    home.ledger.set_quota("both", "alice", Decimal("0.25"), "one project", "steward")
    assert left(home.ledger.dataset("both", "alice"), at).job.epsilon == Decimal("0.25")
    assert describe_budget(home.ledger.dataset("both"))["left"]["one_job"] == {"epsilon": "1", "delta": "0"}


def asked(name: str):
    return request(name, "1", "0")


def test_a_copy_shares_the_budget_of_its_family(home):
    found(home, "first")
    join(home, "copy", "first")
    assert home.ledger.dataset("copy").family == home.ledger.dataset("first").family
    assert [home.ledger.dataset(name).version for name in ("first", "copy")] == [1, 2]
    reserve(home.ledger, asked("copy"), PURE)
    for name in ("first", "copy"):
        with pytest.raises(
            BudgetRefused,
            match=r"used \(100 % by jobs that have not started\)\. No further job fits",
        ):
            reserve(home.ledger, asked(name), PURE)
    reserve(home.ledger, request("adult"))  # another family
    assert audit_home(home).problems == ()


def test_joined_rows_are_charged_to_every_family(home):
    found(home, "left")
    found(home, "right", "3")
    join(home, "both", "left", "right")
    join(home, "nested", "both")
    assert home.ledger.dataset("nested").families == home.ledger.dataset("both").families
    reserve(home.ledger, asked("nested"), PURE)
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, asked("left"), PURE)
    reserve(home.ledger, asked("right"), PURE)
    with pytest.raises(BudgetRefused):  # right has room for it, left has not
        reserve(home.ledger, asked("both"), PURE)
    assert home.ledger.dataset("right").most_used.used.pure == 2 * NANO
    assert home.ledger.dataset("both").most_used.identity == home.ledger.dataset("left").family
    assert audit_home(home).problems == ()


def test_families_of_different_orders_add_up_each_at_its_own(home):
    home.ledger.register(registration("small", Budget.of("1", "0.000001"), unit=PEOPLE))
    join(home, "both", "adult", "small")
    both = home.ledger.dataset("both")
    assert len(both.orders) == 6
    job = reserve(home.ledger, request("both"))
    for name in ("adult", "small"):
        dataset = home.ledger.dataset(name)
        assert (dataset.most_used.used,) == dataset.costs(plan())
    assert home.ledger.reservation(job.seq).value["price"]["rdp"].keys() == {str(order) for order in both.orders}
    home.ledger.release(job.seq)
    assert all(family.used == family.filter.nothing() for family in home.ledger.dataset("both").families)
    assert audit_home(home).problems == ()


def test_what_cannot_join(home):
    home.ledger.register(registration("fixed", relation=Relation.REPLACE_ONE))
    home.ledger.register(registration("records"))
    home.ledger.register(registration("others"))
    before = home.ledger.log.size()
    for change, word in (
        ({"families": ("fixed",), "relation": Relation.REPLACE_ONE}, "families need add-remove"),
        ({"families": ("adult",)}, "unit=record"),
        ({"families": ("records", "others")}, "need the column"),
        ({"families": ("records",), "relation": Relation.REPLACE_ONE}, "relation=replace-one"),
        ({"families": ("records",), "records": 10**6}, "delta"),
    ):
        with pytest.raises(InputError, match=word):
            home.ledger.register(registration("new", None, **change))
    with pytest.raises(UnknownName):
        join(home, "new", "absent")
    with pytest.raises(NameTaken, match="as adult"):
        join(home, "new", "adult", commitment=ledgers.hexes("adult"))
    for budget, families in ((None, ()), (ledgers.TOTAL, ("adult",)), (None, ("adult", "adult"))):
        with pytest.raises(InputError, match="a budget, or families"):
            registration("new", budget, families=families)
    assert home.ledger.log.size() == before


def test_the_audit_demands_the_persons_column_too():
    """A ledger that joined two families by records, written by other code than ours."""
    row = {"dataset": "both", "uuid": "u", "relation": "add-remove", "records": 9, "families": ["one", "other"]}
    digests = {name: ledgers.hexes(name) for name in ("schema", "commitment")}
    for column, word in ((None, "need the column"), ("name", "never founded")):
        unit = {"name": "record", "column": column, "contributions": 1}
        with pytest.raises((InputError, LedgerInvalid), match=word):
            Books().judge_joined(1, {**row, **digests, "unit": unit})


def test_a_name_and_rows_are_taken_though_the_index_knows_nothing_of_them(home):
    size = home.ledger.log.size()
    with home.ledger.log.database.writing() as connection:
        connection.execute(delete(dataset_table).where(dataset_table.c.name == "adult"))
    for name, commitment, words in (
        ("adult", "new", "is registered already"),
        ("new", "adult", "registered already, as"),
    ):
        with pytest.raises(NameTaken, match=words) as refused:
            home.ledger.register(replace(registration(name), commitment=ledgers.hexes(commitment)))
        assert refused.value.details == {"dataset": "adult"}
    assert home.ledger.log.size() == size


def test_another_total_keeps_what_was_spent(home):
    found(home, "d")
    reserve(home.ledger, asked("d"), PURE)
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, asked("d"), PURE)
    raised = home.ledger.change_budget("d", Decimal(2), "the board said so", "steward")
    assert (raised.budget.epsilon, raised.most_used.used.pure) == (2, NANO)
    reserve(home.ledger, asked("d"), PURE)
    lowered = home.ledger.change_budget("d", Decimal("0.5"), "back again", "steward")
    rest = describe_budget(lowered)["left"]
    assert rest == rest | {"epsilon": "0", "share": "0.000000", "one_job": None}
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, request("d", "0.1", "0"), plan(PureDp(Decimal("0.1")), 1))
    assert audit_home(home).problems == ()


@pytest.mark.parametrize(("epsilon", "word"), [("0", "must be > 0"), ("-1", "must be > 0"), ("101", "at most 100")])
def test_no_other_total_is_taken(home, epsilon, word):
    with pytest.raises(InputError, match=word):
        home.ledger.change_budget("adult", Decimal(epsilon), "why", "steward")
    for reason in ("", "x" * 201, "a\nb"):
        with pytest.raises(InputError, match="reason"):
            home.ledger.change_budget("adult", Decimal(1), reason, "steward")


def test_a_joined_dataset_has_no_total_of_its_own(home):
    found(home, "other")
    join(home, "both", "adult", "other")
    with pytest.raises(InputError, match="several families"):
        home.ledger.change_budget("both", Decimal(9), "why", "steward")


TOTALS = st.integers(1, 20_000).map(lambda milli: Decimal(milli) / 1000)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(TOTALS, TOTALS, st.sampled_from(["1e-3", "1e-6", "1e-9"]))
def test_changed_caps_convert_to_the_new_total_and_keep_orders(first, second, delta):
    """Each cap, at the order and share of delta of the founding filter, is worth the new epsilon: no more, and the
    double of it would be more.
    """
    founding = Filter.design(Budget.of(first, delta))
    changed = founding.with_total(second)
    assert changed.orders == founding.orders
    assert [line.weight for line in changed.criteria] == [line.weight for line in founding.criteria]
    for line in changed.criteria:
        share = float(founding.budget.delta * line.weight)
        if line.cap:
            assert epsilon_at(float(line.order), line.cap / NANO, share) <= float(second)
            assert epsilon_at(float(line.order), 2 * line.cap / NANO + 1e-6, share) > float(second)
        else:
            assert epsilon_at(float(line.order), 3e-9, share) > float(second)
    assert founding.with_total(first) == founding


def test_a_quota_holds_for_one_analyst(home):
    found(home, "d", "4")
    home.ledger.set_quota("d", "alice", Decimal("0.25"), "one project", "steward")
    reserve(home.ledger, asked("d"), PURE, by="alice")
    with pytest.raises(BudgetRefused, match="alice may use 0.25") as refused:
        reserve(home.ledger, asked("d"), PURE, by="alice")
    assert refused.value.details["reason"] == "quota"
    reserve(home.ledger, asked("d"), PURE, by="bob")
    home.ledger.set_quota("d", "alice", Decimal("0.5"), "two projects", "steward")
    reserve(home.ledger, asked("d"), PURE, by="alice")
    used = {line["analyst"]: (line["quota"], line["used"]) for line in home.ledger.quotas("d")}
    assert used == {"alice": ("0.5", "0.500000"), "bob": (None, "0.250000")}
    reserve(home.ledger, asked("d"), PURE, by="bob")
    with pytest.raises(BudgetRefused) as refused:  # the budget itself
        reserve(home.ledger, asked("d"), PURE, by="bob")
    assert refused.value.details["reason"] == "budget"
    assert audit_home(home).problems == ()


def test_everybody_has_the_quota_of_all_unless_there_is_an_own_one(home):
    found(home, "d", "4")
    home.ledger.set_quota("d", "*", Decimal("0.25"), "fair", "steward")
    home.ledger.set_quota("d", "alice", Decimal(1), "she runs it", "steward")
    job = reserve(home.ledger, asked("d"), PURE, by="bob")
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, asked("d"), PURE, by="bob")
    home.ledger.release(job.seq)  # what is given back counts for the quota too
    reserve(home.ledger, asked("d"), PURE, by="bob")
    for _ in range(3):
        reserve(home.ledger, asked("d"), PURE, by="alice")
    assert audit_home(home).problems == ()


def test_a_quota_counts_renyi_as_the_filter_does(home):
    """An analyst with a third of (3, 1e-6) gets as many Gaussians as a third of each cap holds."""
    home.ledger.set_quota("adult", "alice", Decimal("0.333333333"), "a third", "steward")
    what = plan(Gaussian(Decimal("8.9957")), 1)
    dataset = home.ledger.dataset("adult", "alice")
    (left,) = {dataset.jobs_left(dataset.costs(what), claim(what, Decimal("0.000001")))}
    assert left == 29 // 3
    for _ in range(left):
        reserve(home.ledger, request(epsilon="3"), what, by="alice")
    with pytest.raises(BudgetRefused):
        reserve(home.ledger, request(epsilon="3"), what, by="alice")
    assert audit_home(home).problems == ()


@pytest.mark.parametrize("share", ["0", "-0.1", "1.1", "0.0000000001", "NaN"])
def test_a_share_is_above_0_and_at_most_1(home, share):
    with pytest.raises(InputError, match="share"):
        home.ledger.set_quota("adult", "alice", Decimal(share), "why", "steward")


def test_the_forecast_is_a_straight_line(home):
    found(home, "d", "10")
    now = datetime.now(UTC)
    dataset = home.ledger.dataset("d")
    assert forecast(home.ledger, dataset, now)["days_left"] is None
    reserve(home.ledger, asked("d"), PURE)
    released = reserve(home.ledger, asked("d"), PURE).seq
    home.ledger.release(released)
    early = forecast(home.ledger, home.ledger.dataset("d"), now + timedelta(days=6.9))
    assert set(early.values()) == {None}  # less than a week says nothing
    seen = forecast(home.ledger, home.ledger.dataset("d"), now + timedelta(days=10))
    assert seen["share_per_day"] == "0.010000"  # a tenth in ten days
    assert seen["days_left"] in (89, 90)
    assert seen["used_up_on"] == (now + timedelta(days=10 + 90)).date().isoformat()
    later = forecast(home.ledger, home.ledger.dataset("d"), now + timedelta(days=40))
    assert later["days_left"] is None  # nothing was spent in the last thirty days


def test_a_second_look_at_the_forecast_reads_no_charges_until_there_is_one(home, monkeypatch):
    found(home, "d", "10")
    now = datetime.now(UTC) + timedelta(days=10)
    read = []
    monkeypatch.setattr(forecasts, "charges", lambda *a, **more: read.append(1) or charges(*a, **more))

    def rate() -> str:
        return forecast(home.ledger, home.ledger.dataset("d"), now)["share_per_day"]

    first = reserve(home.ledger, asked("d"), PURE).seq
    assert [rate(), rate(), rate()] == ["0.010000"] * 3
    assert len(read) == 1
    reserve(home.ledger, asked("d"), PURE)
    assert [rate(), rate()] == ["0.020000"] * 2
    home.ledger.release(first)
    reserve(home.ledger, asked("d"), PURE)  # as much is used as before, by another job
    assert [rate(), rate()] == ["0.020000"] * 2
    assert len(read) == 3
    forecast(home.ledger, home.ledger.dataset("d"), now + timedelta(days=40))
    assert len(read) == 4, "another window"


@pytest.mark.slow
def test_a_person_with_several_rows_is_as_well_hidden():
    """Rows of one person times the sensitivity of a row: the plan says so, and the price is the same."""
    one = exact_laws.public_of(Relation.ADD_REMOVE, 50)
    three = replace(one, contributions=3)
    learner = LEARNERS["lazybb"](rounds=5)
    first, second = learner.recipe(one), learner.recipe(three)
    assert (first.unit, first.claim) == (second.unit, second.claim)
    for (a, n), (b, m) in zip(first.plan.runs, second.plan.runs, strict=True):
        assert (n, b.sensitivity, b.event) == (m, 3 * a.sensitivity, a.event)


def test_contributions_need_add_remove(home):
    unit = Unit("person", "name", 2)
    with pytest.raises(InputError, match="contributions=2"):
        home.ledger.register(registration("new", relation=Relation.REPLACE_ONE, unit=unit))
    home.ledger.register(registration("new", unit=unit))
    for wrong in ({"contributions": 0}, {"name": "person"}, {"contributions": 2}):
        with pytest.raises(InputError):
            Unit(**wrong)
    assert audit_home(home).problems == ()


def test_every_kind_of_entry_can_be_audited(tmp_path):
    home = Home.open(place(ledgers.copy(ledgers.filled(), tmp_path / "home")))
    assert audit_home(home).problems == ()
    advance(home.ledger, reserve(home.ledger, request("copy"), plan(BoundedRange(Decimal("0.01")), 3)).seq, "burned")
    assert audit_home(home).problems == ()
