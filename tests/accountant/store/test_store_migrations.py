"""From one version's tables to the next: nothing lost, nothing done twice, nothing half done."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import quick_ledgers
from alembic.autogenerate import compare_metadata
from alembic.command import upgrade
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from ledgers import ROOT
from postgres import server
from sqlalchemy import Integer, inspect, text
from stores import kind, rows

from accountant.audit import audit
from accountant.audit.audit import audit_place
from accountant.errors import InputError, LedgerInvalid
from accountant.home import Home
from accountant.keys.trust import IssuerKey, PublicKeys
from accountant.store import migrations
from accountant.store.store import Store, checkpoints, leaves
from accountant.store.tables import EVIDENCE, META

SPINE = (
    Path(__file__).resolve().parents[2] / "data" / "spine.sql"
)  # a ledger of the first version, every kind of entry in it


@pytest.fixture
def database(ledger_url):
    opened = Store(ledger_url)
    yield opened
    opened.close()


def spine_rows() -> dict[str, list[dict]]:
    with sqlite3.connect(":memory:") as connection:
        connection.row_factory = sqlite3.Row
        connection.executescript(SPINE.read_text())
        names = ("entry", "node", "checkpoint", "dataset", "job", "token")
        return {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in names}


@pytest.fixture
def spine(database):
    """The first version's ledger. It never ran on PostgreSQL, but its rows can stand there."""
    if kind(database) == "sqlite":
        with sqlite3.connect(database.engine.url.database) as connection:
            connection.executescript(SPINE.read_text())
        return database
    with database.writing() as connection:
        upgrade(migrations.configuration(connection), "0001")
        for name, found in spine_rows().items():
            columns = ", ".join(found[0])
            values = ", ".join(f":{column}" for column in found[0])
            connection.execute(text(f"INSERT INTO {name} ({columns}) VALUES ({values})"), found)
    return database


def schema(database: Store) -> dict:
    """What the database itself says of its tables, with indexes, constraints and triggers."""
    with database.reading() as connection:
        asked = inspect(connection)
        found = {
            name: (
                [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in asked.get_columns(name)],
                asked.get_pk_constraint(name),
                sorted(map(repr, asked.get_unique_constraints(name))),
                sorted(map(repr, asked.get_indexes(name))),
            )
            for name in asked.get_table_names()
        }
        listed = {
            "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name",
            "postgresql": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
        }[kind(database)]
        return found | {"triggers": [tuple(row) for row in connection.execute(text(listed))]}


# The newest revision.


def test_the_constant_is_the_head():
    scripts = ScriptDirectory.from_config(migrations.configuration(None))
    assert scripts.get_current_head() == migrations.HEAD
    assert tuple(each.revision for each in reversed(list(scripts.walk_revisions()))) == migrations.KNOWN


def same_integers(_context, _inspected, _column, found, wanted):
    """SQLite has one type of integer. None: compare as usual."""
    return False if isinstance(found, Integer) and isinstance(wanted, Integer) else None


def test_a_new_database_has_the_tables_that_the_code_speaks_of(database):
    database.create()
    options = {"compare_type": same_integers if kind(database) == "sqlite" else True}
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), META) == []
    assert len(schema(database)["triggers"]) == len(EVIDENCE) * (2 if kind(database) == "sqlite" else 1)


def test_an_old_database_becomes_what_a_new_one_is(spine, tmp_path):
    spine.create()
    new = Store(f"sqlite:///{tmp_path / 'new.db'}" if kind(spine) == "sqlite" else server().fresh())
    new.create()
    assert schema(spine) == schema(new)
    new.close()


def test_other_tests_have_the_tables_that_alembic_makes(database, monkeypatch, tmp_path):
    """They make them by the statements that it sent (quick_ledgers.py): the second database here."""
    database.create()
    monkeypatch.setattr(quick_ledgers, "on", True)
    for number in range(2):
        url = f"sqlite:///{tmp_path / f'{number}.db'}" if kind(database) == "sqlite" else server().fresh()
        again = Store(url)
        again.create()
        assert (schema(again), rows(again)) == (schema(database), rows(database))
        with again.reading() as connection:
            assert migrations.revision(connection) == migrations.HEAD
        again.close()
    assert quick_ledgers.sent[kind(database)]


def test_nothing_is_done_twice(spine):
    spine.create()
    before = rows(spine), schema(spine)
    for _ in range(2):
        spine.create()
    assert (rows(spine), schema(spine)) == before


OPEN = """
import sys
sys.path.insert(0, {root!r})
from accountant.store.store import Store
Store({url!r}).create()
print("alembic" in sys.modules)
"""


@pytest.mark.slow
def test_alembic_is_imported_where_there_is_something_to_do_and_nowhere_else(tmp_path):
    code = OPEN.format(root=str(ROOT), url=f"sqlite:///{tmp_path / 'ledger.db'}")
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)]
    assert said == ["True\n", "False\n"]


# What the rows become.


def trust_of(genesis: bytes) -> PublicKeys:
    value = json.loads(genesis)
    return PublicKeys(value["origin"], (IssuerKey(value["issuer"], 0, None),), value["log"])


def test_an_old_ledger_is_sound_when_it_was_brought_over(spine):
    spine.create()
    with spine.reading() as connection:
        trust = trust_of(next(leaves(connection))[1])
        report = audit.audit(leaves(connection), checkpoints(connection), trust, database=connection)
    assert report.problems == ()
    assert report.entries == len(spine_rows()["entry"])


def test_what_an_old_ledger_held_is_held(spine):
    old = spine_rows()
    spine.create()
    new = rows(spine)
    for name, added in (("entry", ()), ("node", ()), ("checkpoint", ()), ("token", (None,))):
        assert new[name] == sorted(((*row.values(), *added) for row in old[name]), key=repr)
    entries = {row["seq"]: json.loads(row["body"]) for row in old["entry"]}
    families = {row["name"]: entries[row["seq"]]["family"] for row in old["dataset"]}
    used = {families[row["name"]]: (row["seq"], None, row["used"], row["reserved"]) for row in old["dataset"]}
    assert {row[0]: row[1:] for row in new["family"]} == used
    assert {row[0]: json.loads(row[2]) for row in new["dataset"]} == {name: [each] for name, each in families.items()}
    for row in spine_rows()["job"]:
        (job,) = [each for each in new["job"] if each[0] == row["seq"]]
        analyst = entries[row.pop("seq")]["by"]
        assert sorted(map(repr, job[1:])) == sorted(map(repr, [*row.values(), analyst, None, None, None, None]))
    assert {(row[1], row[3], row[4], row[5]) for row in new["signing_key"]} == {
        ("issuer", 0, None, None), ("log", 0, None, None),
    }  # fmt: skip


def test_what_analysts_used_is_summed_by_family(spine):
    spine.create()
    entries = {row["seq"]: json.loads(row["body"]) for row in spine_rows()["entry"]}
    for family, name, share, used in rows(spine)["analyst"]:
        (dataset,) = [each["dataset"] for each in entries.values() if each.get("family") == family]
        released = {each["reservation"] for each in entries.values() if each["type"] == "released"}
        kept = [
            each["price"] for seq, each in entries.items()
            if each["type"] == "reserved" and (each["dataset"], each["by"]) == (dataset, name) and seq not in released
        ]  # fmt: skip
        assert share is None
        assert float(json.loads(used)["pure"]) == pytest.approx(sum(float(each["pure"]) for each in kept))
    assert {row[1] for row in rows(spine)["analyst"]} == {"test", "token:ana", "token:bo"}


def test_evidence_stays_protected(spine):
    spine.create()
    for table in EVIDENCE:
        with pytest.raises(LedgerInvalid, match="append only"), spine.writing() as connection:
            connection.execute(text(f"DELETE FROM {table.name}"))


# What is refused, and what is cut off.


def test_a_newer_database_is_refused(database):
    database.create()
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = rows(database)
    with pytest.raises(InputError, match=r"revision 9999, this version knows 0001, .*0007; use a newer"):
        database.create()
    assert rows(database) == before


def test_an_audit_says_what_another_versions_tables_want_and_not_that_they_are_unsound(tmp_path):
    place = {"DPSERVE_HOME": str(tmp_path / "home")}
    store = Home.init(place).ledger.log.database
    with store.writing() as connection:  # as 0.1 left them before jobs had labels
        for column in ("labels", "trace"):
            connection.execute(text(f"ALTER TABLE job DROP COLUMN {column}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0006'"))
    store.close()
    with pytest.raises(InputError, match=r"revision 0006, this version reads 0007; a command that opens it"):
        audit_place(place)
    Home.open(place).ledger.log.database.close()
    assert audit_place(place).ok
    with store.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(InputError, match="revision 9999.*use a newer"):
        audit_place(place)


def test_somebody_elses_database_is_refused(database):
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE entry (seq INTEGER)"))
    before = schema(database)
    with pytest.raises(InputError, match="give dpserve a database of its own"):
        database.create()
    assert schema(database) == before


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 12, 2))
def test_a_migration_that_is_cut_off_changes_nothing(spine, monkeypatch, at):
    """Stopped at one of its inserts or tables, it leaves the old version, which can be brought over again."""
    from alembic.operations import Operations

    before, calls = schema(spine), []

    def cut(name):
        original = getattr(Operations, name)

        def call(*arguments, **options):
            calls.append(name)
            if len(calls) == at:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("create_table", "bulk_insert", "drop_table"):
            patch.setattr(Operations, name, cut(name))
        with pytest.raises(KeyboardInterrupt):
            spine.create()
    assert schema(spine) == before
    spine.create()
    test_evidence_stays_protected(spine)
