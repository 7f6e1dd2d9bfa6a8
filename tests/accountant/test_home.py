"""The home: made once, open to nobody else, and refused when a part of it is gone or somebody else's."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import ledgers
import pytest
from ledgers import place

from accountant.audit.audit import audit_home
from accountant.home import Home, settings
from dpserve_verify.errors import InputError, KeyInvalid, LedgerInvalid
from dpserve_verify.keys.trust import PublicKeys

pytestmark = pytest.mark.home("filled", folder=True)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_a_new_home_holds_and_who_may_read_it(tmp_path):
    before = os.umask(0)  # the widest that a user may have set
    try:
        home = Home.init(place(tmp_path / "deep" / "home"))
    finally:
        os.umask(before)
    home.ledger.log.database.close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.path.iterdir()}
    folders = ("keys", "models", "datasets", "jobs", "logs")
    assert {name: modes[name] for name in folders} == dict.fromkeys(folders, 0o700)
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700  # so what lies in it is nobody else's to read
    keys = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home.path / "keys").iterdir()}
    assert {mode for name, mode in keys.items() if not name.endswith(".pub.pem")} == {0o600}
    assert set(modes) == {*folders, "ledger.db", "trust.json"}


def test_the_first_entry_names_the_keys(tmp_path):
    home = Home.init(place(tmp_path / "home"))
    (entry,) = home.ledger.log.entries()
    assert (entry.value["type"], entry.value["log"]) == ("genesis", home.trust.log_pem)
    assert entry.value["origin"] == home.trust.origin == home.ledger.log.origin
    assert PublicKeys.from_json((home.path / "trust.json").read_bytes()) == home.trust
    assert audit_home(home).ok


def test_a_home_is_made_once(home):
    before = content(home)
    with pytest.raises(KeyInvalid, match="has keys already"):
        Home.init(place(home))
    assert content(home) == before


def test_a_home_opens_as_it_was_left(home):
    first = Home.open(place(home))
    assert first.trust == Home.open(place(home)).trust
    assert [dataset.registration.name for dataset in first.ledger.datasets()] == ["adult", "copy", "pure"]


def test_where_there_is_none(tmp_path):
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="run `dpserve init` first"):
            Home.open(place(folder))
    assert not (tmp_path / "absent").exists()
    assert list(tmp_path.iterdir()) == []


def test_keys_that_are_gone_are_not_made_anew(home):
    shutil.rmtree(home / "keys")
    before = content(home)
    with pytest.raises(KeyInvalid, match="its keys are gone"):
        Home.open(place(home))
    with pytest.raises(LedgerInvalid, match="its keys are gone"):
        Home.init(place(home))
    assert not (home / "keys").exists()
    beside = {"ledger.db-wal", "ledger.db-shm"}  # as long as somebody has the ledger open
    assert content(home).keys() - beside == before.keys() - beside


@pytest.mark.parametrize("name", ["log.pem", "issuer.pem", "commitment.key", "log.pub.pem", "issuer.pub.pem"])
def test_a_key_that_is_gone_or_readable_by_others_is_refused(home, name):
    if not name.endswith(".pub.pem"):
        (home / "keys" / name).chmod(0o640)
        with pytest.raises(KeyInvalid, match=f"{name}: mode=0640"):
            Home.open(place(home))
    (home / "keys" / name).unlink()
    with pytest.raises(KeyInvalid, match=name):
        Home.open(place(home))


def test_a_key_folder_open_to_the_group_is_refused(home):
    (home / "keys").chmod(0o750)
    with pytest.raises(KeyInvalid, match="mode=0750"):
        Home.open(place(home))


def test_a_ledger_that_is_gone_is_not_begun_anew(home):
    for file in home.glob("ledger.db*"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(LedgerInvalid, match="these keys have signed a ledger before"):
            Home.open(place(home))


@pytest.mark.parametrize("junk", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_ledger_is_refused(home, junk):
    for file in home.glob("ledger.db-*"):
        file.unlink()
    (home / "ledger.db").write_bytes(junk)
    with pytest.raises(LedgerInvalid, match="ledger database"):
        Home.open(place(home))


def test_an_odd_first_entry_is_refused(home):
    for statement in (
        "UPDATE entry SET body = x'7b7d' WHERE seq = 0",
        "UPDATE entry SET body = (SELECT body FROM entry WHERE seq = 1) WHERE seq = 0",
        "DELETE FROM entry WHERE seq = 0",
    ):
        ledgers.raw(home).execute(statement)
        with pytest.raises(LedgerInvalid, match="entry 0"):
            Home.open(place(home))


def test_two_homes_have_nothing_in_common(tmp_path):
    first, second = (Home.init(place(tmp_path / name)) for name in ("first", "second"))
    assert first.trust.origin != second.trust.origin
    assert first.trust.log_pem != second.trust.log_pem
    assert first.keys.commitment([b"rows"]) != second.keys.commitment([b"rows"])
    first.ledger.register(ledgers.registration())
    assert second.ledger.datasets() == []
    for each in (first, second):
        each.ledger.log.database.close()
    swapped = [place(tmp_path / name) for name in ("first", "second")]
    urls = [f"sqlite:///{tmp_path / name / 'ledger.db'}" for name in ("second", "first")]
    for environment, url in zip(swapped, urls, strict=True):
        with pytest.raises(LedgerInvalid, match="another log key"):
            Home.open({**environment, "DPSERVE_LEDGER_URL": url})


def test_a_lost_trust_file_is_written_again_and_a_present_one_left_alone(home):
    raw = (home / "trust.json").read_bytes()
    (home / "trust.json").unlink()
    Home.open(place(home))
    assert (home / "trust.json").read_bytes() == raw
    (home / "trust.json").write_bytes(b"{}")
    assert not audit_home(Home.open(place(home))).ok
    assert (home / "trust.json").read_bytes() == b"{}"


def test_settings_say_where_they_come_from(tmp_path):
    found = settings({"DPSERVE_HOME": str(tmp_path), "DPSERVE_ENGINE": ""})
    assert (found["DPSERVE_HOME"].value, found["DPSERVE_HOME"].source) == (str(tmp_path), "environment")
    assert found["DPSERVE_LEDGER_URL"].value == f"sqlite:///{tmp_path / 'ledger.db'}"
    assert (found["DPSERVE_ENGINE"].value, found["DPSERVE_ENGINE"].source) == ("local", "default")
    assert settings({})["DPSERVE_HOME"].value.endswith("/.local/share/dpserve")


def test_a_database_of_another_kind_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="must be sqlite:///"):
        Home.init(place(tmp_path / "home") | {"DPSERVE_LEDGER_URL": "mysql://x"})
