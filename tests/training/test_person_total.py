"""The total for one person over all blocks: the rows of each are bounded over the window, and every job is charged to
one account more.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledgers import place

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.families.families import Started
from accountant.ledger.families.records import NewPeople, Why
from dpserve_verify.errors import BudgetRefused, InputError, LedgerUnavailable
from dpserve_verify.privacy.budget import Budget
from models.store.bundle import ModelStore
from models.store.loading import load_of_home
from serving.cli.app import run
from training.datasets.datasets import open_rows
from training.datasets.drafts.registering import register_requested
from training.datasets.growing.append import PersonWords, append
from training.datasets.growing.delete import delete
from training.jobs import job, schedule
from training.planning.job_views import dataset_to_json
from training.planning.plans import plan
from training.requests import JobRequest
from training.requests.registration import RegistrationRequest
from training.rows.packed.persons import PEOPLE, Before
from training.rows.people.people import unit_ids
from training.rows.schema.schema import schema_of

SCHEMA = """
target: {name: ill, classes: ["no", "yes"]}
records: 60
features:
  row: {type: numeric, edges: [%s]}
  age: {type: numeric, range: [0, 100], bins: 4}
ignore: [person]
""" % ", ".join(str(each) for each in range(250))  # noqa: UP031 (braces)
BLOCKS, ROWS, MOST = 4, 50, 2
EVERY = [(first, last) for first in range(1, BLOCKS + 1) for last in range(first, BLOCKS + 1)]
FIRST_ROW = 7  # of a person who comes in every block, more often than a person counts


FEW = NewPeople("few of them", "steward")
LATER = PersonWords(Decimal(3), why=Why("steward", "a test"))


def tables(without: str | None = None) -> list[pa.Table]:
    """Block by block: few people, who come again and again. Each row has a number of its own."""
    law, found = np.random.default_rng(11), []
    for block in range(BLOCKS):
        ids = np.array([f"p{each}" for each in law.integers(0, 30, ROWS)], "U8")
        ids[FIRST_ROW : FIRST_ROW + 3] = "often"
        rows = np.arange(block * ROWS, (block + 1) * ROWS)
        table = pa.table(
            {"person": ids, "row": rows.astype(float), "age": rows % 100.0, "ill": np.where(rows % 2, "yes", "no")}
        )
        found.append(table.filter(pa.array(ids != without)))
    return found


def begun(folder, without: str | None = None, by_growth: bool = False, blocks: int = BLOCKS, **more) -> Home:
    """With a total of 3 for one person, declared with the dataset, or given with the first block that is appended."""
    folder.mkdir(exist_ok=True)
    home = Home.init(place(folder / "home"))
    (folder / "visits.yaml").write_text(SCHEMA)
    for block, table in enumerate(tables(without), 1):
        pq.write_table(table, file := folder / f"{block}.parquet")
        if block == 1:
            asked = ({} if by_growth else {"person_epsilon": "3", "person_delta": "0.000001"}) | more
            asked = RegistrationRequest("visits", "2", "0.000001", unit="person", contributions=MOST, **asked)
            register_requested(home, asked, file, folder / "visits.yaml", "steward")
        elif block <= blocks:
            person = LATER if by_growth and block == 2 else PersonWords()
            append(home, "visits", file, "steward", 60, new_rows=FEW, person=person)
    return home


@pytest.fixture(scope="module", params=[False, True], ids=["declared", "by growth"])
def by_growth(request) -> bool:
    return request.param


@pytest.fixture(scope="module")
def grown(tmp_path_factory, by_growth) -> Home:
    return begun(tmp_path_factory.mktemp("grown"), by_growth=by_growth, holdout="0.3")


def read(home: Home, window: tuple[int, int], part: str | None = None) -> list[int]:
    """The numbers of the rows that a job on this window is given."""
    dataset = home.ledger.dataset("visits", None, part, "{}-{}".format(*window))
    request = replace(
        plan(home, JobRequest("visits", "lazybb", "0.1", parameters={"rounds": 2}, blocks="last:1")).request, part=part
    )
    rows = open_rows(home, Started(1, dataset, request, Decimal(1), None), schema_of(home, dataset))  # type: ignore[arg-type]
    return np.asarray(rows.bins)[0].tolist()


def by_definition(window: tuple[int, int], without: str | None = None) -> list[int]:
    """Of each person the first rows of the window, as many as a person counts, block by block in file order."""
    found, seen = [], dict[str, int]()
    for table in tables(without)[window[0] - 1 : window[1]]:
        for who, row in zip(table["person"].to_pylist(), table["row"].to_pylist(), strict=True):
            seen[who] = seen.get(who, 0) + 1
            found += [int(row)] if seen[who] <= MOST else []
    return found


@pytest.mark.slow
def test_a_job_reads_of_each_person_as_many_rows_as_a_person_counts_in_all_its_blocks_together(
    tmp_path, grown, by_growth
):
    """In every window, by either part: what is read is what the definition says; so without a person it is the same but
    for at most MOST rows, however many blocks they were in. Bounded in each block alone it would be up to eight.
    """
    home, less = begun(tmp_path / "all", None, by_growth), begun(tmp_path / "less", "often", by_growth)
    for window in EVERY:
        rows = read(home, window)
        assert rows == by_definition(window)
        assert sorted(read(grown, window) + read(grown, window, "holdout")) == rows
        without = read(less, window)
        assert set(without) < set(rows)
        assert len(rows) - len(without) == MOST
    alone = [row for block in range(1, BLOCKS + 1) for row in read(home, (block, block))]
    gone = [row for block in range(1, BLOCKS + 1) for row in read(less, (block, block))]
    assert (
        len(alone) - len(gone) == MOST * BLOCKS
    )  # what a job on all of them would read if each were bounded by itself


@pytest.mark.slow
def test_the_first_rows_of_a_window_by_every_pattern(tmp_path):
    """Every way in which one person has up to three rows in each of four blocks, beside a stranger, for one and two
    rows that count: in each window the first of them are used. One block too few or too many is caught.
    """
    wrong = 0
    for most in (1, 2):
        for pattern in product(range(4), repeat=4):
            since, earlier = [], []
            for number, count in enumerate(pattern, 1):
                (folder := tmp_path / f"{most}-{'-'.join(map(str, pattern))}-{number}").mkdir()
                ids = unit_ids("person", pa.array(["a"] * min(count, most) + ["stranger"]))
                before = Before(b"key", most, number, earlier)
                since.append(before.since(before.digests(ids), folder)[:-1])
                earlier = [(number, folder), *earlier]
            for first, last in EVERY:
                used = [bool(each < first) for own in since[first - 1 : last] for each in own]
                assert used == [at < most for at in range(len(used))], (pattern, first, last)
                late = [bool(each <= first) for own in since[first - 1 : last] for each in own]
                wrong += late != [at < most for at in range(len(late))]
    assert wrong > 100


@pytest.mark.slow
def test_every_job_is_charged_to_one_person_as_well(grown, by_growth):
    """From the plan to the certificate and the audit: what blocks admit may be too much for one person. A total that is
    given as the dataset grows is added up at the family's orders.
    """
    asked = JobRequest("visits", "lazybb", "1", "0", parameters={"rounds": 4}, blocks="1-2", evaluate="0.5")
    assert plan(grown, asked).to_json()["left"]["jobs"] >= 1
    told = job.train(grown, asked, by="test")
    form = load_of_home(grown, ModelStore(grown.models).resolve(f"visits@{told['version']}"), "visits").certificate.form
    assert (form.dataset.person.budget.epsilon, form.dataset.person.after.pure) == ("3", "1")
    assert "however many blocks" in form.dataset.blocks.together
    assert form.claim.unit.name == "person"
    assert form.claim.unit.bounding.endswith("of all blocks that are read, block by block")
    person = dataset_to_json(grown, grown.ledger.dataset("visits"))["person"]
    assert (person["total"]["epsilon"], person["spent"]["epsilon"]) == ("3", "0.971327" if by_growth else "1")
    asked = {"dataset": "visits", "learner": "lazybb", "epsilon": "1", "delta": "0", "parameters": {"rounds": 4}}
    rule = schedule.make_schedule(grown, "weekly", "week", {**asked, "blocks": "last:1"}, "cli:test", token=None)
    assert schedule.runs_left(grown, rule) == {"alone": 2, "fed": 4}  # however many blocks come
    for blocks in ("3", "3", "4", "4"):
        job.train(grown, JobRequest("visits", "lazybb", "1", "0", parameters={"rounds": 4}, blocks=blocks), by="test")
    with pytest.raises(BudgetRefused, match="one person over all its blocks") as refused:
        plan(grown, JobRequest("visits", "lazybb", "1", "0", parameters={"rounds": 4}, blocks="2"))
    assert refused.value.details["person"] is True
    found = audit_home(grown)
    assert found.ok, found.problems


def test_who_has_rows_in_a_block_is_needed_until_its_rows_are_deleted(tmp_path):
    """A block is not appended beside people who are not there as they were written; deleted with the rows, they are
    not missed: no window reads such a block any more.
    """
    home = begun(tmp_path / "home")
    second = home.datasets / home.ledger.dataset("visits", None, None, "2").commitments[0] / PEOPLE
    kept = second.read_bytes()
    pq.write_table(tables()[0].set_column(1, "row", pa.array(np.arange(200, 200 + ROWS).astype(float))), tmp_path / "5")
    (tmp_path / "5").rename(tmp_path / "5.parquet")
    for bad in (b"", kept[:-1] + b"x", hmac.digest(b"other", kept[32:], "sha256") + kept[32:]):
        second.write_bytes(bad)
        with pytest.raises(LedgerUnavailable, match="block 2"):
            append(home, "visits", tmp_path / "5.parquet", "steward", 60, new_rows=NewPeople("few of them", "steward"))
    assert home.ledger.dataset("visits").last == BLOCKS
    delete(home, "visits", 2, Why("steward", "two years old"))
    assert not second.exists()
    append(home, "visits", tmp_path / "5.parquet", "steward", 60, new_rows=NewPeople("few of them", "steward"))
    seen = dict[str, int]()
    for table in tables()[2:4]:
        for who in table["person"].to_pylist():
            seen[who] = seen.get(who, 0) + 1
    last = [row for row in read(home, (3, 5)) if row >= 200]
    first = [200 + at for at, who in enumerate(tables()[0]["person"].to_pylist()) if seen.get(who, 0) < MOST]
    assert last[0] == first[0]
    assert set(last) <= set(first)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"person_delta": None}, "--person-delta"),
        ({"person_epsilon": "1"}, "at least the total of a block"),
        ({"unit": "record", "contributions": 1}, "the column"),
        ({"relation": "replace-one", "contributions": 1}, "add-remove"),
        ({"person_delta": "0.5"}, "delta"),
    ],
)
def test_what_is_no_total_for_one_person(tmp_path, wrong, told):
    home = Home.init(place(tmp_path / "home"))
    (tmp_path / "visits.yaml").write_text(SCHEMA)
    pq.write_table(tables()[0], tmp_path / "1.parquet")
    given = {"unit": "person", "contributions": MOST, "person_epsilon": "3", "person_delta": "0.000001"} | wrong
    asked = RegistrationRequest("visits", "2", "0.000001", **given)
    with pytest.raises(InputError, match=told):
        register_requested(home, asked, tmp_path / "1.parquet", tmp_path / "visits.yaml", "steward")
    assert home.ledger.datasets() == []


def test_a_dataset_that_was_registered_before_people_were_written_down_is_not_grown_unasked(tmp_path):
    """Nobody could be bounded over all its blocks: said with both remedies, and nothing is entered."""
    folder = tmp_path / "home"
    home = begun(folder, by_growth=True, blocks=1)
    (home.datasets / home.ledger.dataset("visits").registration.commitment / PEOPLE).unlink()
    size = home.ledger.log.size()
    with pytest.raises(LedgerUnavailable, match=r"--family visits.*--each-block --reason"):
        append(home, "visits", folder / "2.parquet", "steward", 60, new_rows=FEW)
    assert home.ledger.log.size() == size
    each = PersonWords(each_block=True, why=Why("steward", "a test"))
    assert append(home, "visits", folder / "2.parquet", "steward", 60, new_rows=FEW, person=each).person is None
    assert audit_home(home).ok


def test_what_is_said_of_one_person_at_the_command_line(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    home = begun(folder, by_growth=True, blocks=1)
    for name, value in place(folder / "home").items():
        monkeypatch.setenv(name, value)
    data = ["dataset", "append", "visits", "--records", "60", "--data", str(folder / "2.parquet")]
    assert run([*data, "--person-epsilon", "9"]) == 2
    assert run([*data, "--reason", "why"]) == 2
    assert run([*data, "--each-block", "--person-epsilon", "9", "--reason", "why"]) == 2
    assert run([*data, "--new-rows", "--reason", "few of them"]) == 0
    assert home.ledger.dataset("visits").person.budget == Budget.of("2", "0.000001")
    assert run([*data[:4], str(folder / "3.parquet"), "--each-block", "--reason", "why"]) == 2
    change = ["dataset", "budget", "visits", "--reason", "why"]
    assert run(change) == 2
    assert run([*change, "--epsilon", "3", "--person-epsilon", "4"]) == 2
    assert run([*change, "--person-epsilon", "4"]) == 0
    assert home.ledger.dataset("visits").person.budget.epsilon == 4
    assert audit_home(home).ok
