"""Search of the ledger: what it finds is what reading every entry finds, on both databases."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from decimal import Decimal

import ledgers
import postgres
import pytest
from stores import at

from accountant.access import tokens
from accountant.access.key_life import revoke
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger import block_appending, entry_search
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.entry_search import Wanted
from accountant.ledger.families.records import Unit, Why
from accountant.store import entry_index
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget

NASTY = 'a "quoted" \\ 100% of_it / é \N{SNOWMAN}'


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def home(request, tmp_path_factory):
    """Read only."""
    folder = tmp_path_factory.mktemp("search")
    url = f"sqlite:///{folder / 'ledger.db'}" if request.param == "sqlite" else postgres.server().fresh()
    found = ledgers.fill(Home.init(at(folder / "home", url)))
    revoke(found, by="steward", reason=NASTY, issued=_first(found, "issued"))
    yield found
    found.ledger.log.database.close()


@pytest.fixture
def fresh(tmp_path):
    return Home.open(ledgers.place(ledgers.copy(ledgers.filled(), tmp_path / "home")))


def _first(home, kind):
    return next(entry.seq for entry in home.ledger.log.entries() if entry.value["type"] == kind)


def values(home):
    return {entry.seq: entry.value for entry in home.ledger.log.entries()}


def found(home, before=None, limit=1000, **wanted):
    return [
        entry.seq for entry in entry_search.search(home.ledger.log.database, Wanted(**wanted), before, limit).entries
    ]


def job_of(number, known):
    """By the definition: the job that an entry is about."""
    value = known[number]
    if value["type"] == "reserved":
        return number
    if value["type"] == "revoked":
        return job_of(value["issued"], known)
    return value.get("reservation")


def expected(known, families, wanted):

    def fits(number, value):
        job = known.get(job_of(number, known), {})
        named = {job.get("model"), job.get("by")}
        named |= {value["name"]} if value["type"].startswith("token") else set()
        decided = value["type"] in ("budget-changed", "quota-set") and value["family"] in families.get(
            wanted.dataset, ()
        )
        of_dataset = wanted.dataset in (value.get("dataset"), job.get("dataset")) or decided
        whole = json.dumps(value, sort_keys=True, separators=(",", ":")).lower()
        return (
            (not wanted.dataset or of_dataset)
            and (not wanted.kind or value["type"] == wanted.kind)
            and (wanted.job is None or job_of(number, known) == wanted.job)
            and (not wanted.name or wanted.name in named)
            and (not wanted.text or json.dumps(wanted.text)[1:-1].lower() in whole)
        )

    return [number for number, value in sorted(known.items(), reverse=True) if fits(number, value)]


@pytest.mark.slow
def test_finds_what_reading_everything_finds(home):
    job = _first(home, "reserved")
    parts = {
        "dataset": ("", "adult", "copy"),
        "kind": ("", "reserved", "quota-set"),
        "job": (None, job),
        "name": ("", "adult", "ci"),
        "text": ("", "ADULT"),
    }
    known, seen = values(home), 0
    families = {
        name: {each.identity for each in home.ledger.dataset(name).families} for name in parts["dataset"] if name
    }
    for each in itertools.product(*parts.values()):
        wanted = Wanted(**dict(zip(parts, each, strict=True)))
        right = expected(known, families, wanted)
        assert found(home, **asdict(wanted)) == right, wanted
        seen += bool(right)
    assert seen > 20  # and not nothing all over


def test_story_of_a_job_ends_with_its_certificate(home):
    issued = _first(home, "issued")
    job = values(home)[issued]["reservation"]
    kinds = [values(home)[number]["type"] for number in found(home, job=job)[::-1]]
    assert kinds == ["reserved", "started", "committed", "issued", "revoked"]


@pytest.mark.parametrize("text", [NASTY, "100%", "of_it", "é", '"quoted"', "\\", "/ é", "\N{SNOWMAN}"])
def test_text_is_taken_as_it_stands(home, text):
    assert found(home, text=text) == [home.ledger.log.size() - 1]


@pytest.mark.parametrize("text", ["100_", "of%it", "1%0", "a_quoted"])
def test_no_character_stands_for_others(home, text):
    assert found(home, text=text) == []


def test_pages_hold_everything_once(home):
    for wanted in (Wanted(), Wanted(dataset="adult"), Wanted(text="adult")):
        whole = [entry.seq for entry in entry_search.search(home.ledger.log.database, wanted, None, 1000).entries]
        before, pages = None, []
        while True:
            page = entry_search.search(home.ledger.log.database, wanted, before, 4)
            pages += [entry.seq for entry in page.entries]
            before = page.older
            if before is None:
                break
        assert pages == whole
        assert len(whole) > 4


def test_long_ledger_is_read_in_parts(home, monkeypatch):
    monkeypatch.setattr(entry_search, "MAX_ENTRIES_READ", 5)
    size, before, looked, numbers = home.ledger.log.size(), None, [], []
    while True:
        page = entry_search.search(home.ledger.log.database, Wanted(text="genesis"), before, 50)
        looked.append(page.looked)
        numbers += [entry.seq for entry in page.entries]
        before = page.older
        if before is None:
            break
    assert looked == [*range(size - 5, 0, -5), 0]
    assert numbers == [0]


def test_index_follows_the_ledger(fresh):
    assert found(fresh, kind="token-created", name="late") == []
    seq = tokens.create(fresh.ledger, "late", ["audit"], ledgers.hexes("late")).created
    assert found(fresh, kind="token-created", name="late") == [seq]


def test_an_earlier_moment_is_not_shown_later_entries(fresh):
    with fresh.ledger.log.database.reading() as before:
        size = fresh.ledger.log.size()
        before.exec_driver_sql("SELECT max(seq) FROM entry")  # from here on it sees this moment
        tokens.create(fresh.ledger, "late", ["audit"], ledgers.hexes("late"))
        assert found(fresh, kind="token-created")[0] == size
        assert len(entry_index.entry_index(fresh.ledger.log.database, before).kinds) == size


def test_dataset_or_kind_that_is_none_is_refused(home):
    with pytest.raises(UnknownName, match="dataset=nobody"):
        found(home, dataset="nobody")
    with pytest.raises(InputError, match="kind='nothing'"):
        found(home, kind="nothing")


def test_another_ledger_in_its_place_is_noticed(fresh):
    assert found(fresh, kind="token-created", name="other") == []
    leaves = ledgers.bodies(fresh.path)
    at = next(n for n, leaf in enumerate(leaves) if b'"type":"token-created"' in leaf)
    kinds = json.loads(leaves[at])["type"]
    swapped = [*leaves[:at], leaves[at + 1], leaves[at], *leaves[at + 2 :]]
    swapped[-1] = ledgers.changed(swapped[-1], time="2020-01-01T00:00:00Z")
    ledgers.rewrite(fresh.path, swapped)
    right = [n for n, leaf in enumerate(swapped) if json.loads(leaf)["type"] == kinds]
    assert found(fresh, kind="token-created") == right[::-1]


def test_missing_entry_is_an_error_and_no_silence(fresh):
    with ledgers.raw(fresh.path) as connection:
        connection.execute("DELETE FROM entry WHERE seq = 3")
    with pytest.raises(LedgerInvalid, match="not every entry"):
        found(fresh, kind="genesis")


def test_what_concerns_a_dataset_that_grew(tmp_path):
    """Its blocks, quotas and totals: by the search and by `Walk` alike, and nothing of another dataset."""
    home = Home.init(ledgers.place(tmp_path / "home"))
    ledger = home.ledger
    for name in ("grown", "other"):
        ledger.register(ledgers.registration(name, unit=Unit("person", "id", 1), person=Budget.of("4", "0.000001")))
        block_appending.append(ledger.log, NewBlock(name, ledgers.hexes(f"{name} 2"), 500, "steward"), 2)
        ledger.set_quota(name, "ann", Decimal("0.5"), "a test", "steward")
        ledger.change_budget(name, Decimal("3.5"), "a test", "steward")
    block_appending.drop(ledger.log, "grown", 1, Why("steward", "old"))
    entries = values(home)
    expected = [seq for seq, each in entries.items() if about(each, "grown", ledger.dataset("grown").family)]
    kinds = [entries[seq]["type"] for seq in expected]
    more = ["dataset-appended", "quota-set", "budget-changed", "blocks-dropped"]
    assert kinds == ["dataset-registered", "person-total", *more]
    assert found(home, dataset="grown") == expected[::-1]
    assert [
        each.seq for each in entry_search.Walk(ledger.log.database, Wanted(dataset="grown"), -1, None, 1000)
    ] == expected


def about(value, name, family):
    return value.get("dataset") == name or ("dataset" not in value and value.get("family") == family)
