"""Many processes at one ledger at once; see test_races. Imports once, forks, lets all of them go at the same moment.

One JSON request on stdin: {"task", "homes": [environment, ...], "processes", "tries", ...}; on stdout the list of what
each try of each process came to. The homes are dealt out in turn: those on other paths have a high-water mark, and so a
lock, of their own, and the database alone decides between them.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from decimal import Decimal
from pathlib import Path

import ledgers

from accountant.home import Home
from accountant.store.store import Store
from dpserve_verify.errors import DpserveError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Gaussian, PureDp
from training.datasets import datasets

PURE = ledgers.plan(PureDp(Decimal("0.1")), 1)
CURVED = ledgers.plan(Gaussian(Decimal("8")), 10)  # without a pure price: a Renyi order decides

WHOLE = ledgers.plan()  # of the race for a total of its own size
SMALL = ledgers.plan(count=1)


def reserve(home: Home, asked: dict, number: int) -> object:
    what = ledgers.request("pure", "0.1", "0", number=number)
    return ledgers.reserve(home.ledger, what, PURE, by=f"analyst {number % 3}").seq


def reserve_curve(home: Home, asked: dict, number: int) -> object:
    return ledgers.reserve(home.ledger, ledgers.request("adult", "3", number=number), CURVED).seq


def reserve_with_key(home: Home, asked: dict, number: int) -> object:
    what = ledgers.request("pure", "0.1", "0")
    return ledgers.reserve(home.ledger, what, PURE, key="the key", owner=f"owner:{number}:1").seq


def reserve_whole(home: Home, asked: dict, number: int) -> object:
    what = SMALL if number % 3 == 2 else WHOLE
    return ledgers.reserve(home.ledger, ledgers.request("raced", "3", number=number), what).seq


def reserve_again(home: Home, asked: dict, number: int) -> object:
    return ledgers.reserve(home.ledger, ledgers.request("again", "3", number=number), WHOLE).seq


def start(home: Home, asked: dict, number: int) -> object:
    return home.ledger.start(asked["job"], f"owner:{number}:1", 60.0).seq


def release_or_start(home: Home, asked: dict, number: int) -> object:
    if number % 2:
        home.ledger.release(asked["job"])
        return "released"
    return home.ledger.start(asked["job"], f"owner:{number}:1", 60.0).seq


def register(home: Home, asked: dict, number: int) -> object:
    return home.ledger.register(ledgers.registration("one", commitment=ledgers.hexes(str(number)))).seq


def register_rows(home: Home, asked: dict, number: int) -> object:
    """Each another part of the same rows, under another name, with a budget of its own."""
    data, schema = (Path(asked["files"]) / name for name in (f"{number}.parquet", "schema.yaml"))
    how = Budget.of("1", "1e-6"), Relation.ADD_REMOVE, "record"
    return datasets.register(home, f"part{number}", data, schema, *how).registration.name


TASKS = {
    each.__name__: each
    for each in (
        reserve, reserve_curve, reserve_with_key, reserve_whole, reserve_again, start, release_or_start, register,
        register_rows,
    )
}  # fmt: skip


def work(asked: dict, number: int, gate: int) -> list:
    """What each try came to: what it returned, or the code of the error."""
    environment = asked["homes"][number % len(asked["homes"])]
    if asked["task"] == "create":
        os.read(gate, 1)
        Store(environment["DPSERVE_LEDGER_URL"]).create()
        return ["created"]
    home, found = Home.open(environment), []
    os.read(gate, 1)
    for _ in range(asked["tries"]):
        try:
            found.append(TASKS[asked["task"]](home, asked, number))
        except DpserveError as error:
            found.append(error.code)
    return found


def child(asked: dict, number: int, gate: int, out: Path) -> None:
    """Never returns."""
    status = 1
    try:
        out.write_text(json.dumps(work(asked, number, gate)))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    asked = json.load(sys.stdin)
    folder = Path(asked["folder"])
    gate, opener = os.pipe()
    children = []
    for number in range(asked["processes"]):
        pid = os.fork()
        if not pid:
            os.close(opener)
            child(asked, number, gate, folder / f"{number}.json")
        children.append(pid)
    os.close(gate)
    os.close(opener)  # the gate is open: every read of it ends
    statuses = [os.waitpid(pid, 0)[1] for pid in children]
    assert not any(statuses), statuses
    print(json.dumps([json.loads((folder / f"{number}.json").read_text()) for number in range(asked["processes"])]))


if __name__ == "__main__":
    main()
