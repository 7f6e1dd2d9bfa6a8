"""By which query rows were read stands in their entry and in every statement, by its digest."""

from __future__ import annotations

import hashlib
import json

import pytest
from ledgers import advance, begun, hexes, plan, registration, request, reserve
from offices import Office

from accountant.audit.audit import audit_home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.records import Unit
from accountant.ledger.families.row_queries import LONGEST, RowQuery
from dpserve_verify.certificates.sentences import NOT_COVERED_OF_QUERY
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget

TEXT = "select * from visits where name <> 'Ada'"
PLAIN, ASKED = RowQuery.of(TEXT), RowQuery.of("select * from visits limit 9", "the visits of one ward", "steward")


@pytest.fixture
def home(tmp_path):
    first = registration("visits", Budget.of("9"), unit=Unit("person", "name"), query=PLAIN)
    return begun(tmp_path / "home", first)


def test_the_entry_holds_the_digest_and_never_the_text(home):
    entry = home.ledger.log.entries()[-1]
    assert entry.value["query"] == {"sha256": hashlib.sha256(TEXT.encode()).hexdigest()}
    assert b"Ada" not in entry.body
    assert home.ledger.dataset("visits").registration.query == PLAIN
    assert audit_home(home).ok


def test_of_each_block_a_statement_says_by_which_query_it_was_read(home):
    for number, query in ((2, ASKED), (3, None), (4, ASKED)):
        block = NewBlock("visits", hexes(f"block {number}"), 1000, "steward", query=query)
        block_appending.append(home.ledger.log, block, number)
    found = {}
    for words in ("1", "3", "all"):
        asked = request("visits", "1", "0")
        job = reserve(home.ledger, type(asked)(**{**vars(asked), "blocks": words, "window": None}), plan())
        advance(home.ledger, job.seq, "started")
        dataset = home.ledger.dataset_of(job.seq)
        stated = json.loads(Office().statement(b"a model", plan(), dataset, "0"))["predicate"]
        assert ("rows were made by a query" in stated["preprocessing"]) == ("queries" in stated["dataset"])
        queries = {"queries": stated["dataset"]["queries"]} if "queries" in stated["dataset"] else {}
        found[words] = queries, NOT_COVERED_OF_QUERY in stated["notCovered"]
    plain = {"sha256": PLAIN.sha256, "blocks": 1}
    asked = {"sha256": ASKED.sha256, "reason": "the visits of one ward", "blocks": 2}
    assert found == {"1": ({"queries": [plain]}, False), "3": ({}, False), "all": ({"queries": [plain, asked]}, True)}
    appended = [each.value for each in home.ledger.log.entries() if each.value["type"] == "dataset-appended"]
    assert [each.get("query") for each in appended] == [ASKED.to_json(), None, ASKED.to_json()]
    assert json.dumps(appended).count("one ward") == 2
    assert audit_home(home).ok


@pytest.mark.parametrize(
    "given",
    [
        {"sha256": "0"}, {"sha256": "A" * 64}, {"sha256": "0" * 64, "reason": "why"}, {"sha256": "0" * 64, "by": "me"},
        {"sha256": "0" * 64, "reason": " ", "by": "me"}, {"sha256": "0" * 64, "reason": "a\nb", "by": "me"},
        {"sha256": "0" * 64, "reason": "x" * (LONGEST + 1), "by": "me"}, {}, {"sha256": "0" * 64, "text": TEXT},
    ],
)  # fmt: skip
def test_what_is_no_query_is_refused(given):
    with pytest.raises(InputError):
        RowQuery.from_json(given)
