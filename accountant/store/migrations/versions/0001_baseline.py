"""The baseline: the tables of version 0.3.0. No database of before is anywhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None
EVIDENCE = ("entry", "node", "checkpoint")
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite's INTEGER has 64 bits, and is the row's own number


def upgrade() -> None:
    """Make the tables, their indexes, and the triggers that protect the evidence."""
    for make in (_evidence, _datasets, _budgets, _jobs, _access, _certificates):
        make()
    protect = {"sqlite": _protect_sqlite, "postgresql": _protect_postgres}[op.get_bind().dialect.name]
    for table in EVIDENCE:
        protect(table)


def _number(name: str) -> sa.Column[int]:
    """Make a primary key that is given, never counted up."""
    return sa.Column(name, LONG, primary_key=True, autoincrement=False)


def _evidence() -> None:
    op.create_table("entry", _number("seq"), sa.Column("body", sa.LargeBinary(), nullable=False))
    op.create_table(
        "node",
        sa.Column("level", sa.Integer(), primary_key=True, autoincrement=False),
        _number("idx"),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "checkpoint",
        _number("size"),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("kinds", sa.Integer(), nullable=False),
    )


def _datasets() -> None:
    op.create_table(
        "dataset",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("families", sa.Text(), nullable=False),
        sa.Column("commitment", sa.String(64), nullable=False, unique=True),
        sa.Column("last", sa.Integer()),
        sa.Column("dropped", sa.Integer()),
    )
    op.create_table(
        "block",
        sa.Column("dataset", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("commitment", sa.String(64), nullable=False, unique=True),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("period", sa.Text()),
    )


def _budgets() -> None:
    op.create_table(
        "family",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("changed", LONG),
        sa.Column("used", sa.Text(), nullable=False),
        sa.Column("reserved", sa.Text(), nullable=False),
    )
    op.create_table(
        "analyst",
        sa.Column("family", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("share", sa.String(16)),
        sa.Column("used", sa.Text(), nullable=False),
    )


def _jobs() -> None:
    op.create_table(
        "job",
        _number("seq"),
        sa.Column("dataset", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("analyst", sa.String(200), nullable=False),
        sa.Column("idempotency_key", sa.String(200)),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("queued", sa.Integer(), nullable=False),
        sa.Column("committed", LONG),
        sa.Column("issued", LONG),
        sa.Column("owner", sa.String(200)),
        sa.Column("expires", sa.Float()),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("doubted", sa.Float()),
        sa.Column("waiting", sa.String(16)),
        sa.Column("trace", sa.String(55)),
    )
    op.create_index("job_state", "job", ["state"])
    op.create_index("job_dataset", "job", ["dataset", "seq"])
    op.create_index("job_key", "job", ["analyst", "idempotency_key"], unique=True)
    op.create_index("job_model", "job", ["model", "state", "seq"])


def _access() -> None:
    op.create_table(
        "token",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("revoked", LONG),
        sa.Column("principal", sa.String(200)),
    )
    op.create_table(
        "granted",
        _number("seq"),
        sa.Column("principal", sa.String(200), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("expires", sa.String(20)),
        sa.Column("revoked", LONG),
    )
    op.create_index("granted_principal", "granted", ["principal"])
    op.create_table(
        "schedule",
        _number("seq"),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("principal", sa.String(200), nullable=False),
        *(sa.Column(name, LONG) for name in ("token", "job", "stopped", "ended")),
    )


def _certificates() -> None:
    op.create_table(
        "signing_key",
        sa.Column("keyid", sa.String(80), primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("pem", sa.Text(), nullable=False),
        sa.Column("added", LONG, nullable=False),
        sa.Column("until", LONG),
        sa.Column("ended", sa.String(16)),
    )
    op.create_table("revoked", _number("issued"), sa.Column("seq", LONG, nullable=False))


def _protect_sqlite(table: str) -> None:
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table}: append only'); END"
        )


def _protect_postgres(table: str) -> None:
    if table == EVIDENCE[0]:
        op.execute(
            "CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '%: append only', TG_TABLE_NAME; END $$"
        )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION append_only()"
    )
