"""tests/helpers/crash_driver.py with the changes of keys as tasks; see test_keyring."""

from __future__ import annotations

from pathlib import Path

import crash_driver
import ledgers

from accountant.access import key_life
from accountant.home import Home


def change(what: str, role: str):
    def task(home: Path, files: Path) -> None:
        opened = Home.open(ledgers.place(home))
        if what == "rotate":
            key_life.rotate(opened, role, "test", "a drill")
        else:
            key_life.mark_compromised(opened, opened.keys.key(role).keyid, 0, "test", "a drill")

    return task


crash_driver.TASKS |= {
    f"{what} {role}": change(what, role) for what in ("rotate", "compromise") for role in ("issuer", "log")
}

if __name__ == "__main__":
    print("ready", flush=True)
    crash_driver.serve()
