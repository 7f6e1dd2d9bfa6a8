"""The tables that Alembic makes: those that the code speaks of, made once, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import quick_ledgers
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from ledgers import ROOT, append_unsigned
from next_version import next_version
from postgres import server
from sqlalchemy import Integer, insert, inspect, text, update
from stores import kind, rows

from accountant.audit.audit import audit_place
from accountant.home import Home
from accountant.store import migrations
from accountant.store.store import Store
from accountant.store.tables import EVIDENCE, META, checkpoint_table, job_table
from dpserve_verify.errors import InputError, LedgerInvalid, LedgerUnavailable


@pytest.fixture
def database(ledger_url):
    opened = Store(ledger_url)
    yield opened
    opened.close()


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


def test_nothing_is_done_twice(database):
    database.create()
    before = rows(database), schema(database)
    for _ in range(2):
        database.create()
    assert (rows(database), schema(database)) == before


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


def test_evidence_is_protected(database):
    database.create()
    with database.writing() as connection:
        append_unsigned(connection, b"an entry")
        connection.execute(insert(checkpoint_table).values(size=1, note="a note", kinds=1))
    for table in EVIDENCE:
        with pytest.raises(LedgerInvalid, match="append only"), database.writing() as connection:
            connection.execute(text(f"DELETE FROM {table.name}"))


# What is refused, and what is cut off.


def test_a_newer_versions_database_is_refused(database):
    database.create()
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = rows(database)
    with pytest.raises(InputError, match=f"revision 9999, this version knows {migrations.HEAD}; use a newer dpserve"):
        database.create()
    assert rows(database) == before


def test_an_audit_says_what_another_versions_tables_want_and_not_that_they_are_unsound(tmp_path, monkeypatch):
    place = {"DPSERVE_HOME": str(tmp_path / "home")}
    store = Home.init(place).ledger.log.database
    with monkeypatch.context() as patch:  # as a version will see it whose tables come after these
        patch.setattr(migrations, "HEAD", "0002")
        patch.setattr(migrations, "KNOWN", ("0001", "0002"))
        with pytest.raises(
            InputError, match="revision 0001, and this version reads 0002; stop the workers and run `dpserve migrate`"
        ):
            audit_place(place)
    assert audit_place(place).ok
    with store.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(InputError, match=r"revision 9999.*use a newer"):
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
def test_a_migration_that_is_cut_off_changes_nothing(database, monkeypatch, at):
    """Stopped at one of its tables, it leaves an empty database, in which all of them can be made."""
    from alembic.operations import Operations

    before, calls, original = schema(database), [], Operations.create_table

    def cut(*arguments, **options):
        calls.append(arguments)
        if len(calls) == at:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Operations, "create_table", cut)
        with pytest.raises(KeyboardInterrupt):
            database.create()
    assert schema(database) == before
    test_evidence_is_protected(database)


def test_tables_are_brought_forward_once_and_not_under_a_job_that_runs(database, tmp_path, monkeypatch):
    """By the step of a version that comes after this one."""
    database.create()
    running = {"seq": 1, "dataset": "d", "state": "started", "model": "m", "analyst": "a", "request": "0" * 64}
    running |= {"queued": 0, "owner": "host:1:1", "expires": time.time() + 60, "done": 0, "total": 1}
    with database.writing() as connection:
        connection.execute(insert(job_table).values(**running))
    next_version(monkeypatch, tmp_path)
    before = rows(database)
    with pytest.raises(LedgerUnavailable, match="job 1 runs by a version whose tables are of revision 0001"):
        database.create()
    assert rows(database) == before
    with database.writing() as connection:
        connection.execute(update(job_table).values(expires=time.time() - 1))
    others = [Store(database.url) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(Store.create, others))
    assert "0001" in {each.revision for each in others} <= {"0001", "0002"}
    with database.reading() as connection:
        assert migrations.revision(connection) == "0002"
        assert "more" in {column["name"] for column in inspect(connection).get_columns("job")}
    for each in others:
        each.close()
