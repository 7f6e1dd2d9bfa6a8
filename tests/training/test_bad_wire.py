"""Two homes on one PostgreSQL behind a wire that cuts, delays, half-closes and falls silent: it costs, and never saves.

What was drawn is charged, whatever became of the answer; nothing hangs; the ledger is sound; and when the wire is good
again every job comes to an end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time

import bad_wire_driver
import ledgers
import pytest
import warm
from charged import check_charged
from crash_driver import ASKED
from faulty_wire import FaultyWire, SilentWire
from ledgers import ROOT, place
from postgres import server

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.store import postgres_timeout
from dpserve_verify.errors import LedgerUnavailable
from training.finish.lease import Lease
from training.jobs import job, queue

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("ROBUST_WIRE_SECONDS", "3"))  # the long form: 120


@pytest.fixture
def homes(tmp_path):
    """Two folders over one database: the first as it was registered, the second a copy, as on another host."""
    first = ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), tmp_path / "first")
    shutil.copytree(first, tmp_path / "second")
    return [first, tmp_path / "second"]


def test_what_is_drawn_is_charged_whatever_the_wire_does(homes, tmp_path):
    direct = (homes[0] / "database.url").read_text()
    name, wires, running = direct.split("@/")[1].split("?")[0], [], []
    for seed, home in enumerate(homes):
        folder = tmp_path / f"w{seed}"
        folder.mkdir()
        wires.append(FaultyWire(folder, server().folder, seed))
        (home / "database.url").write_text(wires[-1].url(name))
        command = [*warm.python(), bad_wire_driver.__file__, str(home), str(home.parent / f"draws{seed}"), str(SECONDS)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'helpers'}"}
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    found = [(each.communicate(timeout=SECONDS + 120), each.returncode) for each in running]
    for (out, error), code in found:
        assert code == 0, error
        assert json.loads(out).get("tried", 0) > 0, out
    assert sum(wire.struck[fault] for wire in wires for fault in ("cut", "half", "silent")) > 0
    for home, wire in zip(homes, wires, strict=True):
        wire.close()
        (home / "database.url").write_text(direct)
    draws = sum(file.stat().st_size for file in tmp_path.glob("draws*"))
    assert draws > 0
    first, second = (Home.open(place(home)) for home in homes)
    check_charged(first, ASKED, draws)
    for home in (first, second):
        while queue.work_once(home) is not None:
            pass
        job.recover(home)
    check_charged(first, ASKED, draws)
    assert {each.state.value for each in first.ledger.jobs()} <= {"released", "burned", "committed"}
    assert all(each.issued is not None for each in first.ledger.jobs() if each.state == "committed")
    assert audit_home(first, [*ledgers.bundles(homes[0]), *ledgers.bundles(homes[1])]).problems == ()
    print({"draws": draws, "struck": [wire.struck for wire in wires], "came to": [out for (out, _), _ in found]})


@pytest.mark.parametrize("lease", [30.0, 1.0])
def test_a_ledger_that_is_cut_off_within_a_job_is_waited_for_as_long_as_a_lease(homes, monkeypatch, lease):
    """Nothing is drawn meanwhile. Within a lease the job goes on and is committed; beyond, it ends, and is burned by
    whoever can reach the ledger again."""
    home, wire, checks = homes[0], SilentWire(server().folder), []
    (home / "database.url").write_text(wire.url((home / "database.url").read_text().split("@/")[1].split("?")[0]))
    monkeypatch.setattr(postgres_timeout, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(Lease, "SECONDS", lease)
    monkeypatch.setattr(Lease, "FRESH", 0.3)
    monkeypatch.setattr(Lease, "BEAT", 0.1)
    opened = Home.open(place(home))
    held = job.submit(opened, ASKED, by="test")
    plain = Lease.check

    def check(own: Lease) -> None:
        checks.append(wire.silent.is_set())
        if len(checks) == 3:
            wire.silent.set()
            time.sleep(0.5)  # what was renewed is not fresh any more
            if lease > 1:
                threading.Timer(2.0, wire.silent.clear).start()
        plain(own)
        assert not wire.silent.is_set()

    monkeypatch.setattr(Lease, "check", check)
    try:
        if lease > 1:
            job.run(opened, held.seq)
            assert len(checks) > 3
        else:
            with pytest.raises(LedgerUnavailable):
                job.run(opened, held.seq)
            assert len(checks) <= 3
    finally:
        wire.silent.clear()
    monkeypatch.undo()
    again = Home.open(place(home))
    assert job.recover(again)["burned"] == ([] if lease > 1 else [held.seq])
    assert again.ledger.job(held.seq).state.value == ("committed" if lease > 1 else "burned")
    assert audit_home(again, [*ledgers.bundles(home)]).problems == ()
    wire.close()
