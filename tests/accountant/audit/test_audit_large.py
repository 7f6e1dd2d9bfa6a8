"""The audit of a long ledger, at random places and with helper processes: the same report as without, always the first
wrong entry, and no process left behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import ledgers
import psutil
import pytest
from ledgers import changed
from long_ledger import COUNT, anywhere, evidence, home, judged, kind_after, quarter_steps, replaced, signed  # noqa: F401

from accountant.audit.audit import audit_place
from accountant.system import signature_pool
from accountant.system.signature_pool import FEW, Signatures
from dpserve_verify.audit.audit import audit
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.log import notes

pytestmark = pytest.mark.slow


def test_it_is_sound_and_needs_no_helpers():
    bodies, filed, _ = evidence()
    alone = judged(bodies, filed, helpers=0)
    assert (alone.ok, alone.entries, alone.first) == (True, COUNT, None)
    assert judged(bodies, filed) == judged(bodies, filed, helpers=1) == alone
    assert replace(audit_place({"DPSERVE_HOME": str(home())}), lost=()) == alone  # it has no files of any model


# Without the log's key.


def test_a_forged_entry():
    (bodies, filed, _), at = evidence(), anywhere()
    assert judged(replaced(bodies, at, changed(bodies[at], time="2020-01-01T00:00:00Z")), filed).first == at


def test_a_ledger_cut_short():
    (bodies, filed, _), at = evidence(), anywhere()
    assert judged(bodies[:at], filed).first == at
    found = judged(bodies[:at], filed[:at], mark=(COUNT, notes.parse_checkpoint(filed[-1][1]).root))
    assert (found.first, found.entries) == (at, at)
    assert f"high-water mark signs {COUNT} entries" in found.problems[0]


def test_entries_in_another_order():
    (bodies, filed, _), at = evidence(), anywhere()
    assert judged([*bodies[:at], bodies[at + 1], bodies[at], *bodies[at + 2 :]], filed).first == at


def test_an_entry_twice():
    (bodies, filed, _), at = evidence(), anywhere()
    assert judged([*bodies[: at + 1], *bodies[at:-1]], filed).first == at + 1


def test_an_entry_left_out():
    (bodies, filed, _), at = evidence(), anywhere()
    assert judged([*bodies[:at], *bodies[at + 1 :]], filed).first == at
    numbered = [(seq, body) for seq, body in enumerate(bodies) if seq != at]
    assert audit(numbered, filed, evidence()[2], helpers=2).first == at


def test_a_checkpoint_with_another_signature():
    (bodies, filed, _), at = evidence(), anywhere()
    size, note = filed[at]
    forged = note[:-20] + ("A" if note[-20] != "A" else "B") + note[-19:]
    found = judged(bodies, replaced(filed, at, (size, forged)))
    assert (found.first, len(found.problems)) == (at, 1)
    assert "does not verify" in found.problems[0]


def test_checkpoints_in_another_order():
    (bodies, filed, _), at = evidence(), anywhere()
    found = judged(bodies, [*filed[:at], filed[at + 1], filed[at], *filed[at + 2 :]])
    assert found.problems == (f"entry {at}: a checkpoint of size {at + 1} is out of place",)
    found = judged(bodies, [*filed[: at + 1], *filed[at:]])
    assert found.problems == (f"entry {at}: a checkpoint of size {at + 1} is out of place",)
    found = judged(bodies, [(10**9, "x"), *filed[:3]])  # hides all that come after it
    assert found.first == 0
    assert "a checkpoint of size 1 is out of place" in found.problems[0]


# With it.


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("reserved", {"price": {"pure": "0", "rdp": {}, "unbounded": 0}}),
        ("reserved", {"idempotency_key": None, "model": "another"}),
        ("started", {"reservation": 0}),
        ("committed", {"released": "x"}),
        ("issued", {"name": "another"}),
    ],
)
def test_a_forged_entry_signed_anew(kind, fields):
    bodies, at = evidence()[0], kind_after(anywhere(), kind)
    forged = replaced(bodies, at, changed(bodies[at], **fields))
    assert judged(forged, signed(forged, at)).first == at


def test_a_job_out_of_its_order():
    """The log's holder exchanges the two steps of one job, wherever they stand, and signs all of it."""
    bodies, at = evidence()[0], kind_after(anywhere(), "committed")
    job = json.loads(bodies[at])["reservation"]
    before = next(seq for seq in range(job, at) if json.loads(bodies[seq]).get("reservation") == job)
    forged = replaced(replaced(bodies, at, bodies[before]), before, bodies[at])
    found = judged(forged, signed(forged, before))
    assert found.first == before
    assert "must be started" in found.problems[0]


def test_a_ledger_rolled_back_and_continued_is_found_by_who_kept_a_checkpoint():
    (bodies, filed, trust), at = evidence(), anywhere()
    forged = replaced(bodies, at, changed(bodies[at], time="2020-01-01T00:00:00Z"))
    fork = signed(forged, at)
    assert judged(forged, fork).ok  # sound in itself
    auditors = [judged(forged, fork, seen=[filed[at - 1][1], filed[-1][1]]), judged(bodies, filed, seen=[fork[-1][1]])]
    assert [found.ok for found in auditors] == [False, False]
    assert auditors[0].first == at  # narrowed down by the older of the two
    assert "kept from before has another root" in auditors[1].problems[0]
    assert trust.origin in fork[-1][1]


# Helpers.


def faults() -> list[tuple[list[bytes], list[tuple[int, str]]]]:
    bodies, filed, _ = evidence()
    several = list(bodies)
    notes_ = list(filed)
    for at in (anywhere() for _ in range(30)):
        several[at] = changed(bodies[at], time="2020-01-01T00:00:00Z")
        notes_[at] = (filed[at][0], filed[at][1].replace("\n\n", "\n", 1))
    everything = [(size, "x") for size, _ in filed]
    return [(several, filed), (bodies, notes_), (several, notes_), (bodies, everything), (bodies[:-7], notes_)]


@pytest.mark.parametrize("number", range(5))
def test_the_report_does_not_depend_on_helpers(number):
    bodies, filed = faults()[number]
    alone = judged(bodies, filed, helpers=0)
    assert not alone.ok
    assert judged(bodies, filed, helpers=1) == alone
    assert judged(bodies, filed, helpers=3) == alone


def ours() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def test_no_helper_outlives_an_audit_that_fails():
    bodies, filed, trust = evidence()
    before = ours()

    def breaking():
        yield from enumerate(bodies[:1750])
        assert len(ours() - before) == 2
        raise LedgerInvalid("entries.jsonl: is cut short")

    with pytest.raises(LedgerInvalid, match="cut short"):
        audit(breaking(), filed, trust, helpers=2)
    assert ours() == before


def test_an_error_in_reading_checkpoints_waits_for_its_turn():
    bodies, filed, _ = evidence()

    def breaking():
        yield from filed[:1944]
        raise LedgerInvalid("checkpoints.jsonl, line 1945")

    for helpers in (0, 2):
        read = []
        with Signatures("x", evidence()[2].log_key_at, helpers) as some, pytest.raises(LedgerInvalid, match="1945"):
            read.extend(some.check(breaking()))
        assert len(read) == 1944
    with pytest.raises(LedgerInvalid, match="line 1945"):
        judged(bodies, breaking())


def test_helpers_that_die_cost_time_alone():
    bodies, filed, trust = evidence()
    before = ours()

    def killing():
        for seq, body in enumerate(bodies):
            if seq == 1500:
                for pid in ours() - before:
                    os.kill(pid, signal.SIGKILL)
            yield seq, body

    assert audit(killing(), filed, trust, helpers=2) == judged(bodies, filed, helpers=0)


def test_few_checkpoints_start_no_helper(monkeypatch):
    monkeypatch.setattr(signature_pool, "_Helper", lambda: pytest.fail("a process for so few"))
    bodies, filed, _ = evidence()
    few = FEW * signature_pool.CHUNK - 1
    assert judged(bodies[:few], filed[:few]).ok


# A shell may start its background jobs deaf to SIGINT, and children are born as deaf.
ENDLESS = """
import sys, itertools, signal
from dataclasses import replace
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
from accountant.audit.audit import audit
from dpserve_verify.keys.trust import PublicKeys
trust = PublicKeys.from_json(Path(sys.argv[1]).read_bytes())
def slow():
    yield from enumerate(itertools.repeat(b"{}", 10))
    print("begun", flush=True)
    import time
    time.sleep(60)
audit(slow(), ((size, "x") for size in itertools.count(1)), trust, helpers=2)
"""


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_helper_outlives_an_audit_that_is_ended(by):
    """Also the whole group, as a terminal interrupts it."""
    command = [sys.executable, "-c", ENDLESS, str(home() / "trust.json")]
    process = subprocess.Popen(
        command, cwd=ledgers.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    helpers = psutil.Process(process.pid).children()
    assert len(helpers) == 2
    (os.killpg if by == signal.SIGINT else os.kill)(process.pid, by)
    assert process.wait(300) != 0
    gone, alive = psutil.wait_procs(helpers, timeout=300)
    assert (len(gone), alive) == (2, [])
    process.stdout.close()


def test_progress_is_told(tmp_path):
    bodies, filed, _ = evidence()
    told: list[tuple[int, int]] = []
    judged(bodies, filed, progress=lambda done, total: told.append((done, total)), total=COUNT)
    assert told == [(1024 * step, COUNT) for step in range(1, COUNT // 1024 + 1)]
    copied = ledgers.copy(home(), tmp_path / "home")
    again: list[tuple[int, int]] = []
    audit_place({"DPSERVE_HOME": str(copied)}, progress=lambda done, total: again.append((done, total)))
    assert again == told
    shutil.rmtree(copied)
