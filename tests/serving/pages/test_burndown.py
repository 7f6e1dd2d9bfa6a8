"""The burn-down: what the families' own sums say, point by point."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import ledgers
import pytest

from accountant.errors import UnknownName
from accountant.ledger.families import family_rows
from accountant.ledger.families.records import Why
from accountant.ledger.forecast import forecast
from accountant.ledger.outside import Outside, charge
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.events import PureDp
from dpserve_verify.privacy.filter import price_from_json
from dpserve_verify.privacy.outside import Curve
from serving.pages.parts.burndown import burndown, by_model

pytestmark = pytest.mark.home("filled")


def by_hand(home, name):
    """(entry, what was used after it) from every entry, the plain way."""
    family = home.ledger.dataset(name).most_used
    jobs = {job.seq: job for job in home.ledger.jobs() if job.state != "released"}
    used, found = family.filter.nothing(), []
    for entry in home.ledger.log.entries():
        if entry.seq in jobs and family.identity in {each.identity for each in _families(home, entry.value["dataset"])}:
            used += price_from_json(entry.value["price"], family.filter.orders)
            found.append((entry.seq, entry.value["time"], family.filter.share(used), family.filter.epsilon_of(used)))
    return found


def _families(home, name):
    with home.ledger.log.database.reading() as connection:
        return family_rows.load(connection, name).families


@pytest.mark.parametrize("name", ["adult", "copy", "pure"])
def test_every_point_is_the_sum_of_the_jobs_before_it(home, name):
    first, *points = burndown(home.ledger, name)
    family = home.ledger.dataset(name).most_used
    assert (first.entry, first.share, first.epsilon, first.jobs) == (family.seq, 0.0, "0", 0)
    assert [(each.entry, each.time, each.share, Decimal(each.epsilon)) for each in points] == by_hand(home, name)
    assert [each.jobs for each in points] == [*range(1, len(points) + 1)]


@pytest.mark.parametrize("name", ["adult", "copy", "pure"])
def test_what_each_model_took_is_the_sum_of_its_jobs(home, name):
    family, found = home.ledger.dataset(name).most_used, by_model(home.ledger, name)
    jobs = {job.seq: job for job in home.ledger.jobs()}
    wanted = {}
    for entry, *_ in by_hand(home, name):
        price = price_from_json(home.ledger.log.entry(entry).value["price"], family.filter.orders)
        wanted[jobs[entry].model] = wanted.get(jobs[entry].model, family.filter.nothing()) + price
    assert {each["model"]: each["share"] for each in found} == {n: family.filter.share(p) for n, p in wanted.items()}
    assert sum(each["jobs"] for each in found) == len(by_hand(home, name))
    assert found == sorted(found, key=lambda each: -each["share"])


@pytest.mark.parametrize("name", ["adult", "copy", "pure"])
def test_last_point_is_where_the_budget_stands(home, name):
    family = home.ledger.dataset(name).most_used
    last = burndown(home.ledger, name)[-1]
    assert last.share == family.share > 0
    assert Decimal(last.epsilon) == family.filter.epsilon_of(family.used)


def test_job_that_was_given_back_is_left_out(home):
    before = burndown(home.ledger, "adult")
    seq = ledgers.reserve(home.ledger).seq
    assert burndown(home.ledger, "adult")[-1].entry == seq
    home.ledger.release(seq)
    assert burndown(home.ledger, "adult") == before


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_many_jobs_are_drawn_by_few_points(home, most):
    for number in range(12):
        ledgers.reserve(
            home.ledger, ledgers.request("pure", "0.1", "0"), ledgers.plan(PureDp(Decimal("0.001")), number + 1)
        )
    whole, few = burndown(home.ledger, "pure"), burndown(home.ledger, "pure", most)
    assert len(few) <= most + 1
    assert few[0] == whole[0]
    assert few[-1] == whole[-1]
    assert set(few) <= set(whole)


def test_nothing_spent_is_one_point(home):
    home.ledger.register(ledgers.registration("new"))
    assert [each.share for each in burndown(home.ledger, "new")] == [0.0]


def test_other_total_is_drawn_against_what_is_in_force(home):
    before = burndown(home.ledger, "pure")[-1]
    home.ledger.change_budget("pure", Decimal(3), "a test", "steward")
    after = burndown(home.ledger, "pure")[-1]
    assert after.share == pytest.approx(before.share / 2)
    assert after.epsilon == before.epsilon


def test_unknown_dataset_and_torn_entry_are_refused(home):
    with pytest.raises(UnknownName):
        burndown(home.ledger, "nobody")
    job = home.ledger.jobs()[0].seq
    with ledgers.raw(home.path) as connection:
        connection.execute(f"UPDATE entry SET body = (SELECT body FROM entry WHERE seq = 0) WHERE seq = {job}")
    with pytest.raises(LedgerInvalid, match=f"entry {job}"):
        burndown(home.ledger, "adult")


def test_what_was_released_elsewhere_is_a_point_and_a_line_of_its_own(home):
    seq = charge(home.ledger, "adult", Outside(Curve.read({"rho": "0.001"}), "a table", Why("steward", "published")))
    family = home.ledger.dataset("adult").most_used
    last = burndown(home.ledger, "adult")[-1]
    assert (last.entry, last.share, Decimal(last.epsilon)) == (seq, family.share, family.epsilon_of(family.used))
    price = price_from_json(home.ledger.log.entry(seq).value["price"], family.filter.orders)
    (line,) = [each for each in by_model(home.ledger, "adult") if each["model"] == ""]
    assert (line["jobs"], line["share"]) == (1, family.share_of(price))
    later = datetime.now(UTC) + timedelta(days=10)
    dataset = home.ledger.dataset("adult")
    before = forecast(home.ledger, dataset, later)["share_per_day"]
    charge(home.ledger, "adult", Outside(Curve.read({"rho": "0.002"}), "a table", Why("steward", "published")))
    assert forecast(home.ledger, home.ledger.dataset("adult"), later)["share_per_day"] > before
