"""A dataset that grows, with real rows: blocks are packed as the first was, and jobs read those of their window."""

from __future__ import annotations

import shutil
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from ledgers import bundles, place

from accountant.audit.audit import audit_home
from accountant.errors import DataError, NameTaken, WrongState
from accountant.home import Home
from accountant.ledger import block_appending, comparisons
from accountant.ledger.archive import archive
from accountant.ledger.families.families import Started
from accountant.ledger.families.records import NewPeople, Why
from accountant.ledger.families.windows import Period
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.bundle import ModelStore
from models.store.loading import load_of_home
from training.datasets import datasets, known_rows
from training.datasets.datasets import open_rows, register
from training.datasets.growing.append import PersonWords, append, pack
from training.datasets.growing.delete import delete
from training.jobs import job
from training.planning import plans
from training.planning.plans import plan
from training.requests import JobRequest
from training.rows.partitions.rows import FEW_ROWS, row_bound
from training.rows.schema.schema import schema_of

ROWS = 300
AGAIN = {"person": PersonWords(each_block=True, why=Why("steward", "a test"))}
TOTAL = Budget.of("2", "0.000001")
SCHEMA = """
target: {name: ill, classes: ["no", "yes"]}
records: 300
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  day: {type: date, range: [2026-01-01, 2027-01-01], bins: 12}
  ward: {type: categorical, values: [a, b]}
ignore: [person]
"""


def weeks(count: int, people: int = 200) -> list[pa.Table]:
    """Week by week: the same people come again and again, on other days."""
    law = np.random.default_rng(5)
    found = []
    for week in range(count):
        ids = law.permutation(people)[:ROWS] if people >= ROWS else law.integers(0, people, ROWS)
        days = np.datetime64("2026-01-05") + 7 * week + law.integers(0, 7, ROWS)
        age = np.round(law.uniform(0, 100, ROWS), 3)
        ill = np.where(age + law.normal(0, 20, ROWS) > 50, "yes", "no")
        columns = {
            "person": ids,
            "age": age,
            "day": days.astype("M8[D]"),
            "ward": law.choice(["a", "b"], ROWS),
            "ill": ill,
        }
        found.append(pa.table(columns))
    return found


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> Home:
    """Four weeks, the last two dated; a fifth of the people is kept aside."""
    folder = tmp_path_factory.mktemp("grown")
    home = Home.init(place(folder / "home"))
    (folder / "visits.yaml").write_text(SCHEMA)
    for week, table in enumerate(weeks(4), 1):
        pq.write_table(table, folder / f"{week}.parquet")
    first = folder / "1.parquet"
    register(
        home, "visits", first, folder / "visits.yaml", TOTAL, Relation.ADD_REMOVE, "person", 2, holdout=Decimal("0.2")
    )  # fmt: skip
    append(home, "visits", folder / "2.parquet", "steward", 300, **AGAIN)
    for week in (3, 4):
        days = pq.read_table(folder / f"{week}.parquet")["day"]
        since, until = (str(each(days).as_py()) for each in (pc.min, pc.max))
        append(home, "visits", folder / f"{week}.parquet", "steward", 250, Period("day", since, until), **AGAIN)
    return home


def used(home: Home, blocks: str, part: str | None = None) -> tuple:
    """The rows that a job on these blocks would be given."""
    dataset = home.ledger.dataset("visits", None, part, blocks)
    schema = schema_of(home, dataset)
    asked = JobRequest("visits", "lazybb", "0.5", blocks=blocks, parameters={"rounds": 5})
    request = plan(home, asked).request
    rows = open_rows(
        home, Started(1, dataset, request if part is None else _of(request, part), TOTAL.epsilon, None), schema
    )  # type: ignore[arg-type]
    return np.asarray(rows.bins), np.asarray(rows.labels)


def _of(request, part):
    return replace(request, part=part)


def test_a_window_is_its_blocks_read_as_one(grown):
    """What a job is given are the packed rows of its blocks, one behind the other; a person of several blocks stands in
    the same part in all of them, and in each with at most two rows.
    """
    parts = [used(grown, str(block)) for block in (2, 3, 4)]
    bins, labels = used(grown, "2-4")
    assert (bins == np.concatenate([each[0] for each in parts], axis=1)).all()
    assert (labels == np.concatenate([each[1] for each in parts])).all()
    aside = [used(grown, str(block), "holdout")[1].size for block in (1, 2, 3, 4)]
    tables = weeks(4)
    held = set()
    for block, table in enumerate(tables, 1):
        ids = table["person"].to_numpy()
        most = sum(min(2, int(count)) for count in np.unique(ids, return_counts=True)[1])
        assert used(grown, str(block))[1].size + aside[block - 1] == most
        held |= {block} if aside[block - 1] else set()
    assert len(held) == 4


@pytest.mark.slow
def test_jobs_on_windows_end_to_end(grown):
    """Train, evaluate and tell: each block pays, the certificate says which, and the audit agrees."""
    asked = JobRequest("visits", "lazybb", "0.5", parameters={"rounds": 5}, blocks="last:3", evaluate="0.25")
    body = job.train(grown, asked, by="test")
    assert body["window"] == [2, 4]
    assert body["evaluated"]["worth"]["part"] == "holdout"
    again = job.train(grown, JobRequest("visits", "ebm", "1.3", parameters={"epochs": 3}, blocks="1-2"), by="test")
    found = ModelStore(grown.models).resolve(f"visits@{again['version']}")
    form = load_of_home(grown, found, "visits").certificate.form
    blocks = form.dataset.blocks
    assert (blocks.first, blocks.last, blocks.of, blocks.tightest) == (1, 2, 4, 2)
    assert form.claim.unit.name == "person in a block"
    assert form.claim.unit.bounding.endswith("in each block")
    assert "b times the family's epsilon" in blocks.together
    shares = [round(each.share, 3) for each in grown.ledger.dataset("visits", None, None, "all").families]
    assert shares[2] == shares[3] < shares[0] < shares[1]
    with pytest.raises(BudgetRefused, match="block 2"):
        job.train(grown, JobRequest("visits", "ebm", "1.3", parameters={"epochs": 3}, blocks="all"), by="test")
    assert job.train(grown, JobRequest("visits", "lazybb", "0.1", blocks="4"), by="test", key="k")["window"] == [4, 4]
    report = audit_home(grown, bundles(grown.path))
    assert report.ok, report.problems


def test_records_of_a_window_are_those_of_its_blocks(grown):
    """The public guesses add up: of all rows, less what is kept aside; a delta must be below one over them."""
    assert grown.ledger.dataset("visits", blocks="1-3").records == 300 + 300 + 250
    with pytest.raises(InputError, match="must be below 1/records = 1/850"):
        plan(grown, JobRequest("visits", "lazybb", "0.1", delta="0.0012", blocks="1-3"))


def test_what_is_no_new_block(grown, tmp_path, monkeypatch):
    """Refused before anything is entered: the same rows, many of the same rows, days of others, another schema."""
    monkeypatch.setattr(comparisons, "MAX_ANSWERS", 100)
    blocks = grown.ledger.dataset("visits").last
    tables = weeks(5)

    def refused(table: pa.Table, error: type[Exception], match: str, period: Period | None = None, **more) -> None:
        pq.write_table(table, tmp_path / "rows.parquet")
        with pytest.raises(error, match=match):
            append(
                grown,
                "visits",
                tmp_path / "rows.parquet",
                "steward",
                **{"records": 300, "period": period, **AGAIN, **more},
            )

    fifth = Period("day", "2026-02-02", "2026-02-08")
    refused(tables[2], NameTaken, "registered already, in visits")
    refused(
        pa.concat_tables([tables[4], tables[1].slice(0, 60)]),
        NameTaken,
        "rows of this file are in block 2 of visits",
    )
    with pytest.MonkeyPatch.context() as patch:  # the oldest are compared as one, and the block is named all the same
        patch.setattr(known_rows, "MOST_BLOCKS", 1)
        patch.setattr(known_rows, "GROUPS", 1)
        assert [*known_rows.groups_of(grown.ledger.dataset("visits"))] == ["visits, blocks 2 to 3", "visits, block 4"]
        for number in (2, 3, 4):
            table = pa.concat_tables([tables[4], tables[number - 1].slice(0, 60)])
            refused(table, NameTaken, f"rows of this file are in block {number} of visits")
    refused(pa.concat_tables([tables[4], tables[3].slice(9, 1)]), DataError, "day, row 302 .*: not dated within", fifth)
    refused(tables[4].set_column(2, "day", pa.nulls(ROWS, pa.date32())), DataError, "row 2", fifth)
    refused(
        tables[4], InputError, "must be a date or datetime of the schema", Period("age", "2026-02-02", "2026-02-08")
    )
    refused(tables[4], NameTaken, "block 4 has the days", Period("day", "2026-01-26", "2026-02-08"))
    refused(tables[4].drop_columns(["ward"]), DataError, "ward")
    refused(tables[4].set_column(1, "age", pa.array(["old"] * ROWS)), DataError, "age")
    refused(tables[4].slice(0, 0), DataError, "no rows")
    refused(tables[4], InputError, "records=0: must be from 1 to", records=0)
    refused(tables[4], InputError, "must be from 1 to", records=1 << 70)
    assert grown.ledger.dataset("visits").last == blocks
    assert not [*grown.datasets.glob("*.partial")]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_block_for_a_retired_dataset_ends_with_its_error(grown, tmp_path, monkeypatch, meanwhile):
    """Before rows are packed; or, where it is retired `meanwhile`, after they were packed once."""
    pq.write_table(weeks(6)[5], tmp_path / "rows.parquet")
    blocks, packed = grown.ledger.dataset("visits").last, []

    def count(*arguments: Any) -> Any:
        assert len(packed) < meanwhile, "the rows are packed again"
        packed.append(1)
        if not grown.ledger.log.entries()[-1].value["type"].endswith("-archived"):
            archive(grown.ledger, "dataset", "visits", Why("steward", "superseded"))
        return pack(*arguments)

    monkeypatch.setattr("training.datasets.growing.append.pack", count)
    if not meanwhile:
        archive(grown.ledger, "dataset", "visits", Why("steward", "superseded"))
    try:
        with pytest.raises(WrongState, match="dataset=visits: is retired"):
            append(grown, "visits", tmp_path / "rows.parquet", "steward", 300, **AGAIN)
    finally:
        archive(grown.ledger, "dataset", "visits", Why("steward", "a test"), ends=True)
    assert (grown.ledger.dataset("visits").last, len(packed)) == (blocks, meanwhile)


def test_rows_that_look_registered_are_appended_with_a_reason(tmp_path):
    home = Home.init(place(tmp_path / "home"))
    (tmp_path / "visits.yaml").write_text(SCHEMA)
    first, second = weeks(2)
    pq.write_table(first, tmp_path / "1.parquet")
    pq.write_table(pa.concat_tables([second, first.slice(0, 60)]), tmp_path / "2.parquet")
    register(home, "visits", tmp_path / "1.parquet", tmp_path / "visits.yaml", TOTAL, Relation.ADD_REMOVE, "person")
    new = NewPeople("counted twice by the laboratory", "steward")
    assert append(home, "visits", tmp_path / "2.parquet", "steward", 300, new_rows=new).last == 2
    entry = home.ledger.log.entry(home.ledger.dataset("visits").blocks[1].seq)
    assert entry.value["new_rows"]["reason"] == "counted twice by the laboratory"
    assert audit_home(home).ok


def test_rows_of_a_block_that_another_host_entered_meanwhile_stay(tmp_path, monkeypatch):
    """It shares the folder, but not the lock: here nobody saw its block before the ledger refused ours."""
    home = Home.init(place(tmp_path / "home"))
    (tmp_path / "visits.yaml").write_text(SCHEMA)
    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for table, file in zip(weeks(2), files, strict=True):
        pq.write_table(table, file)
    register(home, "visits", files[0], tmp_path / "visits.yaml", TOTAL, Relation.ADD_REMOVE, "person")
    enter = block_appending.append

    def entered_there(*given, **tried):
        if not tried:  # in earnest
            enter(*given)
        return enter(*given, **tried)

    monkeypatch.setattr(block_appending, "append", entered_there)
    with pytest.raises(NameTaken, match="in block 2 of visits already"):
        append(home, "visits", files[1], "steward", 300)
    dataset = home.ledger.dataset("visits")
    assert dataset.last == 2
    datasets.require_rows(home, dataset)


def test_a_window_may_have_as_many_rows_as_its_blocks_together(grown):
    """What rounding is paid for: each block alone may have FEW_ROWS, so more than a guess at their sum has."""
    asked = grown.ledger.dataset("visits")
    budget = Budget.of("0.5", "0.0000005")
    public = plans.public_of(asked, schema_of(grown, asked), budget)
    assert len(asked.blocks) == 4
    assert public.most == 4 * FEW_ROWS > row_bound(public.records)
    wide = replace(asked, blocks=tuple(replace(block, records=1 << 36) for block in asked.blocks))
    with pytest.raises(InputError, match="blocks: there may be 549755813888 rows in them, and 274877906944"):
        plans.public_of(wide, schema_of(grown, asked), budget)


@pytest.mark.last
def test_deleted_rows_are_gone_and_their_account_and_sketch_stay(grown, tmp_path, monkeypatch):
    """Last in this file: the first two blocks go. What a crash after the entry leaves, the same command removes."""
    monkeypatch.setattr(comparisons, "MAX_ANSWERS", 100)
    dataset = grown.ledger.dataset("visits", None, None, (1, 4))
    folders = [grown.datasets / commitment for commitment in dataset.commitments]
    spent = [family.used for family in dataset.families]
    (leftover := tmp_path / "bins.npy").write_bytes((folders[1] / "bins.npy").read_bytes())
    left = delete(grown, "visits", 2, Why("steward", "kept for two weeks"))
    shutil.copy(leftover, folders[1] / "bins.npy")
    with pytest.raises(InputError, match="upto=0: must be the number of a block"):
        delete(grown, "visits", 0, Why("steward", "none"))
    assert delete(grown, "visits", 2, Why("steward", "again")).dropped == left.dropped == 2
    assert [sorted(each.name for each in folder.iterdir()) for folder in folders[:2]] == [
        ["schema.yaml", "sketch.npz"]
    ] * 2
    assert (folders[2] / "bins.npy").exists()
    assert [family.used for family in grown.ledger.dataset("visits", None, None, (1, 4)).families] == spent
    with pytest.raises(InputError, match="rows up to block 2 were deleted"):
        plan(grown, JobRequest("visits", "lazybb", "0.1", blocks="2-3"))
    assert plan(grown, JobRequest("visits", "lazybb", "0.1", blocks="all")).request.window == (3, 4)
    pq.write_table(weeks(4)[1], tmp_path / "again.parquet")
    with pytest.raises(NameTaken, match="registered already"):
        append(grown, "visits", tmp_path / "again.parquet", "steward", 300, **AGAIN)
    assert audit_home(grown, bundles(grown.path)).ok
