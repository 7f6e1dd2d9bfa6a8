"""The audit against the holder of the log's key, who can sign anything: the entries must make sense by themselves."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from decimal import Decimal

import ledgers
import pytest
from audited import COUNT, LEAVES, report, trust
from hypothesis import given
from hypothesis import strategies as st
from ledgers import bodies, changed, copy, filled, place, plan, raw, request, reserve, rewrite

from accountant.audit.audit import audit_home
from accountant.errors import EntryRefused
from accountant.home import Home
from accountant.keys.private_keys import KeyStore
from accountant.ledger import admission
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.log import notes
from dpserve_verify.privacy.budget import NANO
from dpserve_verify.privacy.events import BoundedRange, Gaussian, PureDp
from dpserve_verify.privacy.renyi import rdp_nano
from dpserve_verify.privacy.second_opinion import renyi
from serving.cli.app import run
from serving.process.watch import audit_runs
from serving.process.watch.metrics import AuditGauges

pytestmark = pytest.mark.home("filled", folder=True)


def first_of(kind: str, **fields) -> int:
    values = [json.loads(leaf) for leaf in LEAVES]
    found = (seq for seq, each in enumerate(values) if each["type"] == kind and fields.items() <= each.items())
    return next(found)


RESERVED, STARTED, ISSUED = first_of("reserved"), first_of("started"), first_of("issued")
VALUE = json.loads(LEAVES[RESERVED])
CHEAPER = {**VALUE["price"], "pure": "0.4"}
FLAT = {**VALUE["price"], "rdp": dict.fromkeys(VALUE["price"]["rdp"], "0.000000001")}
A_HAIR_LESS = {  # than the definitions: rounding up and a unit for each of its 25 releases are no part of them
    **VALUE["price"],
    "rdp": {order: str(Decimal(figure) - Decimal("51e-9")) for order, figure in VALUE["price"]["rdp"].items()},
}
UNKNOWN_EVENT = [{**VALUE["plan"][0], "event": {"type": "free", "epsilon": "1"}}]
FORGERIES = [
    ("dataset-registered", {"filter": []}, "filter"),
    ("dataset-registered", {"budget": {"epsilon": "30", "delta": "0.000001"}}, "filter"),
    ("dataset-registered", {"relation": "none"}, "relation"),
    ("dataset-registered", {"records": 1_000_000}, "delta"),
    ("dataset-registered", {"commitment": "0"}, "commitment"),
    ("dataset-registered", {"query": {"sha256": "0"}}, "sha256"),
    ("dataset-registered", {"query": {}}, "query"),
    ("dataset-registered", {"query": {"sha256": "0" * 64, "reason": "a word", "by": ""}}, "query"),
    ("dataset-registered", {"query": {"sha256": "0" * 64, "text": "select"}}, "query"),
    ("dataset-registered", {"firsts": True}, "firsts: needs more than one row of a person"),
    ("dataset-joined", {"firsts": False}, "firsts: must be true"),
    ("dataset-joined", {"query": {"sha256": "0" * 64, "reason": "nobody says it"}}, "query"),
    ("dataset-joined", {"families": []}, "families"),
    ("dataset-joined", {"families": ["x"]}, "never founded"),
    ("dataset-joined", {"relation": "replace-one"}, "relation"),
    ("dataset-joined", {"records": 1_000_000}, "delta"),
    ("budget-changed", {"filter": [{"cap": "1", "order": "2", "weight": "1"}]}, "filter"),
    ("budget-changed", {"budget": {"epsilon": "1.5", "delta": "0.000001"}}, "delta"),
    ("budget-changed", {"reason": ""}, "reason"),
    ("quota-set", {"share": "1.5"}, "share"),
    ("quota-set", {"share": "0.90"}, "share"),
    ("quota-set", {"family": "x"}, "never founded"),
    ("reserved", {"price": CHEAPER}, "price"),
    ("reserved", {"price": FLAT}, "price"),
    ("reserved", {"price": A_HAIR_LESS}, "price"),
    ("reserved", {"claim": {**VALUE["claim"], "epsilon": "0.1"}}, "claim"),
    ("reserved", {"claim": {**VALUE["claim"], "delta": "0"}}, "claim"),
    ("reserved", {"plan": []}, "plan"),
    ("reserved", {"plan": UNKNOWN_EVENT}, "not on the closed list"),
    ("reserved", {"plan": [{**VALUE["plan"][0], "sensitivity": "01"}]}, "decimal"),
    ("reserved", {"plan": [{**VALUE["plan"][0], "count": 0}]}, "count"),
    ("reserved", {"plan": [VALUE["plan"][0]] * 2}, "price"),
    ("reserved", {"dataset": "absent"}, "no such dataset"),
    ("reserved", {"learner": "other"}, "request"),
    ("reserved", {"epsilon": "NaN"}, "decimal"),
    ("reserved", {"epsilon": "0.6"}, "request"),
    ("reserved", {"idempotency_key": 5}, "idempotency_key"),
    ("reserved", {"extra": 1}, "exactly the fields"),
    ("reserved", {"time": "yesterday"}, "time"),
    ("reserved", {"time": 5}, "time: must be like"),
    ("started", {"reservation": COUNT}, "no such job"),
    ("started", {"reservation": True}, "reservation: must be the index"),
    ("started", {"reservation": 1}, "no such job"),
    ("committed", {"released": "x"}, "released"),
    ("committed", {"type": "burned"}, "exactly the fields"),
    ("issued", {"name": "other"}, "name"),
    ("issued", {"model": "x"}, "model"),
    ("token-created", {"scopes": ["all"]}, "scopes"),
    ("token-created", {"scopes": ["root"]}, "scopes"),
    ("token-created", {"principal": "*"}, "principal"),
    ("token-revoked", {"hash": "0" * 64}, "no such token"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fields", "problem"), FORGERIES)
def test_a_signed_forgery_is_named(home, kind, fields, problem):
    seq = first_of(kind)
    rewrite(home, [changed(leaf, **fields) if index == seq else leaf for index, leaf in enumerate(LEAVES)])
    found = report(home)
    assert found.first == seq
    assert problem in found.problems[0]


def test_what_a_newer_version_wrote_is_not_judged_and_what_stands_before_it_is(home, capsys, monkeypatch):
    """Whatever an unknown entry means, the tree and its signatures are seen to the end: a ledger that is cut, or that
    was rewritten, is not sound.
    """
    kept = Home.open(place(home)).ledger.log.checkpoint()
    newer = [changed(leaf, type="gift") if index == ISSUED else leaf for index, leaf in enumerate(LEAVES)]
    rewrite(home, newer)
    found = report(home)
    assert (found.problems, found.newer, found.ok, found.exit_code) == ((), ISSUED, False, 1)
    assert found.verdict == f"sound up to entry {ISSUED}; from there of a newer version"
    assert (found.entries, found.to_json()["newer"]) == (len(LEAVES), ISSUED)
    monkeypatch.setenv("DPSERVE_HOME", str(home))
    assert run(["ledger", "audit"]) == 1
    said = capsys.readouterr().out
    assert (f"sound up to entry {ISSUED}" in said, "NOT SOUND" in said) == (True, False)
    opened = Home.open(place(home))
    found = audit_runs.audit_at(opened.path, opened.ledger.log.database.url)
    assert (found["newer"], audit_runs.last_audit(opened)["problems"]) == (ISSUED, [])
    gauges = {each.name: each.samples[0].value for each in AuditGauges(opened.path).collect()}
    assert gauges["dpserve_audit_ok"] == 1  # no alarm says that it is not sound
    opened.ledger.log.database.close()
    assert report(home, seen=[kept]).problems  # another history than the one that was signed
    rewrite(home, [changed(leaf, epsilon="NaN") if index == RESERVED else leaf for index, leaf in enumerate(newer)])
    assert (report(home).first, report(home).exit_code) == (RESERVED, 4)
    rewrite(home, newer)
    with raw(home) as connection:
        connection.execute("DELETE FROM entry WHERE seq = ?", (len(LEAVES) - 1,))
    assert f"missing; the checkpoint of size {len(LEAVES)} signs {len(LEAVES)} entries" in report(home).problems[0]


def entry(kind: str, **fields) -> bytes:
    return canonical.encode({"type": kind, "time": "2026-01-01T00:00:00Z", **fields})


def job_in(state: str) -> int:
    """The reservation of the job that ledgers.fill brought to `state`."""
    return first_of("reserved", idempotency_key=f"key {ledgers.STATES.index(state)}")


MORE = {
    "a second genesis": LEAVES[0],
    "a dataset again": LEAVES[1],
    "a key again": LEAVES[RESERVED],
    "a token again": LEAVES[first_of("token-created")],
    "a token revoked again": LEAVES[first_of("token-revoked")],
    "not JSON": b"\xff",
    "nothing": b"",
    "a list": b"[]",
    "a float": b'{"time":"2026-01-01T00:00:00Z","type":"started","reservation":3.0}',
    "not canonical": LEAVES[STARTED].replace(b",", b", ", 1),
    "a key twice": LEAVES[STARTED].replace(b"{", b'{"reservation":3,', 1),
    "trailing bytes": LEAVES[STARTED] + b" ",
}
ILLEGAL = [
    *(("started", state, {}) for state in ledgers.STATES if state != "reserved"),
    *(("committed", state, {"released": "0" * 64}) for state in ledgers.STATES if state != "started"),
    *(("burned", state, {"reason": "failed"}) for state in ledgers.STATES if state != "started"),
    *(("released", state, {}) for state in ledgers.STATES if state != "reserved"),
]


GONE_ON = {
    "of a job that waits": [("reserved", {"times": 1})],
    "of a job that is over": [("burned", {"times": 1})],
    "from the second time": [("started", {"times": 2})],
    "the same time twice": [("started", {"times": 1}), ("started", {"times": 1})],
    "truth for a number": [("started", {"times": True})],
    "not at all": [("started", {"times": 0})],
    "once too often": [("started", {"times": time}) for time in range(1, 7)],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", GONE_ON)
def test_a_job_that_goes_on_as_none_can_is_named(home, what):
    more = [entry("resumed", reservation=job_in(state), **fields) for state, fields in GONE_ON[what]]
    rewrite(home, [*LEAVES, *more[:-1]])
    assert report(home).problems == ()
    rewrite(home, [*LEAVES, *more])
    assert report(home).first == COUNT + len(more) - 1


@pytest.mark.slow
@pytest.mark.parametrize("what", MORE)
def test_one_signed_entry_too_many_is_named(home, what):
    rewrite(home, [*LEAVES, MORE[what]])
    assert report(home).first == COUNT


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "state", "fields"), ILLEGAL)
def test_an_illegal_transition_is_named(home, kind, state, fields):
    after = {"after": []} if kind in ("started", "released") else {}
    rewrite(home, [*LEAVES, entry(kind, reservation=job_in(state), **after, **fields)])
    found = report(home)
    assert found.first == COUNT
    assert "must be" in found.problems[0]


@pytest.mark.parametrize("state", [state for state in ledgers.STATES if state != "committed"])
def test_a_certificate_is_issued_once_and_for_committed_jobs(home, state):
    digests = {"statement": "0" * 64, "model": "0" * 64, "name": "adult"}
    rewrite(home, [*LEAVES, entry("issued", reservation=job_in(state), **digests)])
    assert report(home).first == COUNT


def test_admission_is_run_again(home):
    """Signed by the log's key, priced rightly, and beyond the budget: no forged index and no key helps."""
    source = copy(filled(), home.parent / "source")
    opened = Home.open(place(source))
    for _ in range(2):  # 0.5 of 1.5 was spent before
        reserve(opened.ledger, request("pure", "0.5", "0"), plan(PureDp(Decimal("0.05")), 10))
    opened.ledger.log.database.close()
    leaves = bodies(source)
    rewrite(home, [*leaves, leaves[-1]])
    found = report(home)
    assert found.first == COUNT + 2
    assert "admission" in found.problems[0]


def test_what_was_not_released_cannot_be_spent_twice(home):
    """Leaving out a `burned` or `started` entry does not give its price back; a forged `released` is illegal."""
    rewrite(home, [leaf for index, leaf in enumerate(LEAVES) if index != STARTED])
    assert report(home).first is not None


def test_a_history_rewritten_and_signed_anew_is_found_by_a_checkpoint_kept_from_before(home):
    """The one thing that the ledger alone cannot show: hence checkpoints are to be kept elsewhere."""
    kept = Home.open(place(home)).ledger.log.checkpoint()
    registered = copy(filled(), home.parent / "source")
    rewrite(registered, LEAVES[:3])
    connection = raw(registered)
    for table in ("job", "token", "analyst"):
        connection.execute(f"DELETE FROM {table}")
    connection.execute("DELETE FROM dataset WHERE name = 'copy'")
    nothing = {"pure": "0", "rdp": dict.fromkeys(VALUE["price"]["rdp"], "0"), "unbounded": 0}
    for seq, figures in ((1, nothing), (2, {**nothing, "rdp": {}})):
        text = json.dumps(figures)
        connection.execute("UPDATE family SET used = ?, reserved = ?, changed = NULL WHERE seq = ?", (text, text, seq))
    assert report(registered).ok  # sound in itself
    found = report(registered, seen=[kept])
    assert (found.ok, found.first) == (False, 3)
    assert "kept from before" in found.problems[0]
    later = changed(LEAVES[3], time="2020-01-01T00:00:00Z")
    rewrite(home, [*LEAVES[:3], later, *LEAVES[4:]])
    assert report(home).ok
    assert report(home, seen=[kept]).first == 0  # a kept checkpoint covers all entries below it at once
    older = raw(copy(filled(), home.parent / "third")).execute("SELECT note FROM checkpoint WHERE size = 3")
    assert report(home, seen=[*older.fetchone(), kept]).first == 3


def test_a_kept_checkpoint_must_be_signed(home, tmp_path):
    kept = Home.open(place(home)).ledger.log.checkpoint()
    assert report(home, seen=[kept]).ok
    other = KeyStore.create(tmp_path / "other")
    forged = notes.sign_checkpoint(trust(home).origin, 1, bytes(32), other.signer("log"))
    for note in (forged, "", kept.replace("dpserve", "d")):
        assert not report(home, seen=[note]).ok


def test_problems_are_counted_but_not_without_end(home):
    rewrite(home, [LEAVES[0], *[b"{}"] * 300])
    found = report(home)
    assert found.entries == 301
    assert found.first == 1
    assert len(found.problems) == 100


# Prices, twice.

DECIMALS = st.integers(1, 20 * NANO).map(lambda nanos: Decimal(nanos) / NANO)
ORDERS = st.floats(1.1, 5000)


@pytest.mark.parametrize("kind", [BoundedRange, PureDp, Gaussian])
@given(value=DECIMALS, order=ORDERS)
def test_definitions_and_closed_forms_agree(kind, value, order):
    """The searched worst case is the accountant's closed form, and the stored price covers it by one to two units."""
    own, event = renyi(kind(value), order), kind(value)
    assert math.isclose(own, event.rdp(order), rel_tol=1e-12, abs_tol=1e-12)
    if own < 1000:  # a price beyond any budget has no room for single units in a float
        assert own * NANO < rdp_nano(event, order) <= own * NANO + 3


def test_the_definitions_notice_a_wrong_closed_form(home, monkeypatch):
    """Were the ledger's own formula wrong, it would write nothing, and the audit would know: here it gives half the
    price."""
    honest = BoundedRange.rdp
    monkeypatch.setattr(BoundedRange, "rdp", lambda self, order: honest(self, order) / 2)
    opened = Home.init(place(home.parent / "other"))
    opened.ledger.register(ledgers.registration())
    entries = opened.ledger.log.size()
    with pytest.raises(InputError, match="auditor.* is below what the definitions give.*nothing was charged"):
        reserve(opened.ledger, request(epsilon="0.5"), plan(BoundedRange(Decimal("0.0217")), 25))
    assert opened.ledger.log.size() == entries
    assert opened.ledger.jobs() == []
    monkeypatch.setattr(admission, "judging", lambda: suppress(LedgerInvalid))
    with pytest.raises(EntryRefused, match="below what the definitions give.*nothing was changed or charged"):
        reserve(opened.ledger, request(epsilon="0.5"), plan(BoundedRange(Decimal("0.0217")), 25))
    assert opened.ledger.log.size() == entries
    monkeypatch.setattr(*ledgers.UNJUDGED)
    seq = reserve(opened.ledger, request(epsilon="0.5"), plan(BoundedRange(Decimal("0.0217")), 25)).seq
    found = audit_home(opened)
    assert found.first == seq
    assert "definitions" in found.problems[0]


OVERSTATED = {
    "a pure price": {"pure": "0.6"},
    "Renyi figures": {
        "rdp": {order: canonical.decimal_string(Decimal(each) * 2) for order, each in VALUE["price"]["rdp"].items()}
    },
}


@pytest.mark.parametrize("what", OVERSTATED)
def test_more_than_the_definitions_give_is_sound(home, what):
    """What is charged for is what the entry says: a figure that is too high spends more than it has to."""
    price = {**VALUE["price"], **OVERSTATED[what]}
    (line,) = VALUE["after"]
    after = line | {"used": price, "reserved": price, "analyst": {**line["analyst"], "used": price}}
    rewrite(home, [*LEAVES[:RESERVED], changed(LEAVES[RESERVED], price=price, after=[after])])
    assert not [said for said in report(home).problems if said.startswith("entry")]
