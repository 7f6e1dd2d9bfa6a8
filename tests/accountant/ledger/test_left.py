"""What is left: the largest single job that all accounts of a window admit, as `reserve` does, and which one binds."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledgers import advance, hexes, place, plan, registration, request, reserve

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.left import (
    Left,
    describe_budget,
    families_of,
    left,
    left_in_windows,
    left_of,
    left_words,
    roomiest,
)
from accountant.ledger.families.records import HOLDOUT, Request, Unit, Why
from accountant.ledger.forecast import forecast
from accountant.privacy.claims import claim
from accountant.privacy.gdp import delta_of
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import NANO, Budget, from_nano, nano
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release

DELTA = Decimal("0.000001")
PEOPLE = Unit("person", "name")


def gaussian(noise: int) -> Plan:
    """One release on a grid so fine that its claim is that of Gaussian noise."""
    return Plan.of([Release("sums", "discrete-gaussian", "l2", 10**6, Gaussian(from_nano(noise)))])


def pure(epsilon: Decimal) -> Plan:
    return plan(PureDp(epsilon), 1)


def grow(home: Home, upto: int, name: str = "g") -> None:
    for number in range((home.ledger.dataset(name).last or 1) + 1, upto + 1):
        dataset = home.ledger.dataset(name)
        named = dataset.registration.unit.column is not None and dataset.person is None
        words = {"each_block": Why("steward", "a test")} if named else {}
        block_appending.append(
            home.ledger.log, NewBlock(name, hexes(f"{name} {number}"), 1000, "steward", **words), number
        )


def asked(name: str, epsilon: Decimal, delta: Decimal, blocks: str | None = None, part: str | None = None) -> Request:
    """Return a job that trains; of what is kept aside a profile, as nothing trains on that."""
    job = replace(request(name, str(epsilon), str(delta)), blocks=blocks, part=part)
    return job if part is None else replace(job, kind=Profile(), model="", learner="profile", parameters={})


@lru_cache(maxsize=512)
def least_noise(epsilon: Decimal, delta: Decimal) -> int:
    """Of one Gaussian release whose claim is at most this, the least noise in nano-units: the largest such job."""
    low, high = 1e-6, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, float(epsilon)) <= float(delta) else (low, middle)
    noise = int(NANO / low)
    while claim(gaussian(noise), delta).epsilon > epsilon:
        noise += 1 + noise // 10**7
    return noise


def takes(home: Home, of: Request, what: Plan, by: str) -> bool:
    """Whether the ledger admits it; it is given back at once."""
    try:
        job = reserve(home.ledger, of, what, by=by)
    except BudgetRefused:
        return False
    home.ledger.release(job.seq)
    return True


def largest_admitted(dataset: Dataset, delta: Decimal, by_noise: bool) -> Decimal:
    """The claim of the largest job of one release that the accounts admit, found nano-step by nano-step."""

    def admits(what: Plan) -> bool:
        costs, claimed = dataset.costs(what), claim(what, delta)
        return dataset.refusing(costs) is None or dataset.can_close(claimed, costs)

    if by_noise:
        low, high = 10**6, 10**7 * NANO
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if admits(gaussian(middle)) else (middle + 1, high)
        return claim(gaussian(low), delta).epsilon
    low, high = 0, 20 * NANO
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if admits(pure(from_nano(middle))) else (low, middle - 1)
    return from_nano(low)


def check(home: Home, dataset: Dataset, by: str, blocks: str | None, part: str | None, delta: Decimal) -> Left:
    """What is told is admitted by the ledger itself; and the largest that is admitted is what is told, rounded down."""
    told = left(dataset, delta)
    epsilon, name = told.job.epsilon, dataset.registration.name
    by_noise = told.job.delta > 0
    if epsilon:
        what = gaussian(least_noise(epsilon, told.job.delta)) if by_noise else pure(epsilon)
        assert takes(home, asked(name, epsilon, told.job.delta, blocks, part), what, by), told
    most = largest_admitted(dataset, delta, by_noise)
    assert epsilon <= most
    more = max(Decimal("0.02"), epsilon + Decimal("0.002"))  # a step of what is told, and the rounding of many releases
    assert most < more, told
    bigger = gaussian(least_noise(more, told.job.delta)) if by_noise else pure(more)
    if not by_noise and told.job.delta < delta:  # no noise has room: whatever asks for more is refused
        bigger = pure(more)
    assert not takes(home, asked(name, more, told.job.delta, blocks, part), bigger, by), told
    return told


SIZES = st.sampled_from(["0.05", "0.3", "0.9", "2"])
KINDS = st.sampled_from([PureDp, BoundedRange])
JOBS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), SIZES, KINDS, st.sampled_from(["alice", "bob"]), st.booleans()),
    max_size=7,
)  # fmt: skip


def spend(home: Home, name: str, blocks: str | None, part: str | None, epsilon: str, kind: type, by: str) -> None:
    what = plan(kind(Decimal(epsilon) / 10), 10)
    with suppress(BudgetRefused):
        reserve(home.ledger, asked(name, Decimal(epsilon), DELTA, blocks, part), what, by=by)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    blocks=st.integers(1, 4), person=st.sampled_from([None, "1", "2.5"]), holdout=st.booleans(), jobs=JOBS,
    closes=st.sampled_from([None, 1, 2]), quota=st.sampled_from([None, "0.3", "1"]),
    total=st.sampled_from([None, "0.4", "1.5"]), data=st.data(),
)  # fmt: skip
def test_one_job_is_what_reserve_admits_on_a_dataset_that_grows(
    blocks, person, holdout, jobs, closes, quota, total, data
):
    folder = Path(tempfile.mkdtemp(prefix="dpserve-left-"))
    home = Home.init(place(folder / "home"))
    try:
        about = registration("g", Budget.of("1", "0.000001"), unit=PEOPLE)
        about = replace(about, holdout=Decimal("0.2") if holdout else None)
        home.ledger.register(replace(about, person=None if person is None else Budget.of(person, "0.000001")))
        if total and not person:
            home.ledger.change_budget("g", Decimal(total), "a test", "steward")
        if blocks > 1:
            grow(home, blocks)
        if quota:
            home.ledger.set_quota("g", "alice", Decimal(quota), "a test", "steward")
        if closes and closes <= blocks:
            budget = home.ledger.dataset("g").budget
            words = None if blocks == 1 else str(closes)
            with suppress(BudgetRefused):
                what = gaussian(least_noise(budget.epsilon, DELTA))
                reserve(home.ledger, asked("g", budget.epsilon, DELTA, words), what, by="bob")
        for first, last, epsilon, kind, by, aside in jobs:
            low, high = sorted((first % blocks + 1, last % blocks + 1))
            words = None if blocks == 1 else f"{low}-{high}"
            spend(home, "g", words, HOLDOUT if aside and holdout else None, epsilon, kind, by)
        by = data.draw(st.sampled_from(["alice", "bob"]))
        part = data.draw(st.sampled_from([None, HOLDOUT] if holdout else [None]))
        for words in [None] if blocks == 1 else ["all", "last:1", str(data.draw(st.integers(1, blocks)))]:
            for delta in (DELTA, Decimal(0)):
                check(home, home.ledger.dataset("g", by, part, words), by, words, part, delta)
        if blocks > 1:
            open_one = home.ledger.dataset("g", by, part)
            each = [left(home.ledger.dataset("g", by, part, str(number))) for number in range(1, blocks + 1)]
            most = max(found.job.epsilon for found in each)
            assert left(open_one).job.epsilon == most
            newest, whole = home.ledger.dataset("g", by, part, "last:1"), home.ledger.dataset("g", by, part, "all")
            found = left_in_windows(open_one)
            assert (found["newest"], found["all"]) == (left(newest), left(whole))
            assert left(roomiest(open_one)) == left(open_one)
    finally:
        home.ledger.log.database.close()
        shutil.rmtree(folder)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    totals=st.tuples(st.sampled_from(["1", "3"]), st.sampled_from(["0.5", "1"])), jobs=JOBS,
    quota=st.sampled_from([None, "0.3"]), total=st.sampled_from([None, "0.4", "4"]), whole=st.booleans(),
)  # fmt: skip
def test_one_job_is_what_reserve_admits_on_several_families(totals, jobs, quota, total, whole):
    folder = Path(tempfile.mkdtemp(prefix="dpserve-left-"))
    home = Home.init(place(folder / "home"))
    try:
        for name, epsilon in zip("ab", totals, strict=True):
            home.ledger.register(registration(name, Budget.of(epsilon, "0.000001"), unit=PEOPLE))
        home.ledger.register(registration("both", None, families=("a", "b"), unit=PEOPLE))
        if total:
            home.ledger.change_budget("a", Decimal(total), "a test", "steward")
        if quota:
            home.ledger.set_quota("b", "alice", Decimal(quota), "a test", "steward")
        if whole:
            epsilon = home.ledger.dataset("b").budget.epsilon
            reserve(home.ledger, asked("b", epsilon, DELTA), gaussian(least_noise(epsilon, DELTA)), by="bob")
        for first, _, epsilon, kind, by, _ in jobs:
            spend(home, ("a", "b", "both")[first % 3], None, None, epsilon, kind, by)
        for name in ("a", "b", "both"):
            for by in ("alice", "bob"):
                check(home, home.ledger.dataset(name, by), by, None, None, DELTA)
        rows = {row.family.name: left(row.dataset) for row in families_of(home.ledger.datasets())}
        assert rows == {name: left(home.ledger.dataset(name)) for name in "ab"}
    finally:
        home.ledger.log.database.close()
        shutil.rmtree(folder)


def register(home: Home, total: str, person: str | None = None, **changes) -> None:
    about = registration("g", Budget.of(total, "0.000001"), unit=Unit() if person is None else PEOPLE)
    people = None if person is None else Budget.of(person, "0.000001")
    home.ledger.register(replace(about, person=people, **changes))


def close_block(home: Home, words: str | None, total: str = "1") -> int:
    job = reserve(home.ledger, asked("g", Decimal(total), DELTA, words), gaussian(least_noise(Decimal(total), DELTA)))
    advance(home.ledger, job.seq, "issued")
    return job.seq


def test_a_dataset_is_used_up_only_if_no_window_admits_a_job(home):
    """A job of the whole total closes block 1; block 2 is fresh, and all figures that name no window are its."""
    register(home, "1")
    job = close_block(home, None)
    grow(home, 2)
    dataset = home.ledger.dataset("g")
    told, windows = left(dataset), left_in_windows(dataset)
    assert (told.share, told.job.epsilon, told.window, told.binding.words) == (1.0, 1, (2, 2), "block 2")
    assert windows["newest"] == told
    assert (windows["all"].share, windows["all"].job.epsilon) == (0.0, 0)
    assert windows["all"].binding.words == f"block 1, closed by job {job}"
    body = describe_budget(dataset)
    assert (body["closed_by"], body["spent"]["epsilon"], body["account"]["block"]) == (None, "1", 1)
    assert [each["name"] for each in body["left"]["windows"]] == ["newest", "all"]
    assert left_words(body["left"]) == (
        "block 2: 0 % of the budget used. Room for one more job: up to epsilon 1; "
        f"blocks 1-2 together: 100 % of the budget used. No further job fits (block 1, closed by job {job})"
    )
    assert forecast(home.ledger, dataset)["days_left"] is None
    (row,) = families_of(home.ledger.datasets())
    assert left(row.dataset) == told
    close_block(home, "2")
    body = describe_budget(home.ledger.dataset("g"))
    assert (body["left"]["share"], body["left"]["one_job"]) == ("0.000000", None)
    assert body["closed_by"] is not None
    grow(home, 3)
    assert left(home.ledger.dataset("g")).window == (3, 3)
    assert audit_home(home).ok


def test_an_older_block_with_more_room_is_named_beside_the_newest(home):
    register(home, "1")
    grow(home, 3)
    close_block(home, "3")
    windows = left_in_windows(home.ledger.dataset("g"))
    assert [(name, found.window) for name, found in windows.items()] == [
        ("roomiest", (2, 2)), ("newest", (3, 3)), ("all", (1, 3)),
    ]  # fmt: skip
    assert left(home.ledger.dataset("g")) == windows["roomiest"]
    assert windows["newest"].job.epsilon == 0


def test_one_persons_total_is_in_every_figure(home):
    """Total 2 a block, 2 for one person: after three jobs of .9 on one block each, it is the person's that binds."""
    register(home, "2", "2")
    grow(home, 4)
    for number in (1, 2, 3):
        reserve(
            home.ledger, asked("g", Decimal("0.9"), DELTA, str(number)), gaussian(least_noise(Decimal("0.9"), DELTA))
        )
    dataset = home.ledger.dataset("g")
    told = left(dataset)
    person = left_of([dataset.person], DELTA)
    assert told.binding.words == told.least.words == "one person's total"
    assert (told.job, told.share) == (person.job, person.share)
    assert told.job.epsilon < Decimal("0.9")
    (row,) = families_of([dataset])
    assert left(row.dataset) == told
    assert describe_budget(dataset)["left"]["binding"]["account"] == "person"


def test_one_persons_total_bounds_a_job_that_closes_a_block(home):
    """Nothing was used of block 2, so one job may take the whole of it: as far as the person's total has room."""
    register(home, "1", "1.5")
    grow(home, 2)
    assert left(home.ledger.dataset("g")).job == replace(left(home.ledger.dataset("g")).job, epsilon=Decimal(1))
    check(home, home.ledger.dataset("g", None, None, "last:1"), "bob", "last:1", None, DELTA)
    reserve(home.ledger, asked("g", Decimal(1), DELTA, "1"), pure(Decimal(1)))
    told = check(home, home.ledger.dataset("g", None, None, "2"), "bob", "2", None, DELTA)
    assert told.binding.kind == "person"


def test_the_quota_of_who_asks_binds(home):
    register(home, "1")
    home.ledger.set_quota("g", "alice", Decimal("0.2"), "a test", "steward")
    told = left(home.ledger.dataset("g", "alice"))
    assert told.binding.words == "the quota of alice in family g"
    assert told.job.epsilon < left(home.ledger.dataset("g", "bob")).job.epsilon == 1
    reserve(
        home.ledger, asked("g", told.job.epsilon, DELTA), gaussian(least_noise(told.job.epsilon, DELTA)), by="alice"
    )
    assert left(home.ledger.dataset("g", "alice")).share < 0.01


def test_of_deleted_rows_nothing_is_left(home):
    register(home, "1")
    grow(home, 2)
    block_appending.drop(home.ledger.log, "g", 2, Why("steward", "a test"))
    told = left(home.ledger.dataset("g"))
    assert (told.share, told.job.epsilon, told.binding.words) == (0.0, 0, "the rows of all blocks are deleted")
    with pytest.raises(InputError, match="were deleted"):
        reserve(home.ledger, asked("g", Decimal("0.1"), DELTA, "all"), pure(Decimal("0.1")))
    grow(home, 3)
    assert left(home.ledger.dataset("g")).window == (3, 3)


def test_thousands_of_blocks_take_as_long_as_few(home):
    """Blocks that stand alike are worked out once: no more rooms than there are different standings."""
    register(home, "1")
    grow(home, 3)
    dataset = home.ledger.dataset("g")
    many = replace(
        dataset,
        last=20_000,
        families=tuple(replace(dataset.families[1], block=number) for number in range(1, 20_001)),
        blocks=tuple(replace(dataset.blocks[1], number=number) for number in range(1, 20_001)),
    )
    assert left(many).window == (20_000, 20_000)
    assert left_in_windows(many)["all"].window == (1, 20_000)
    assert nano(left(many).job.epsilon) == NANO
