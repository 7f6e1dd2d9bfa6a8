"""The first ledgers: evidence, datasets, jobs, tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None
EVIDENCE = ("entry", "node", "checkpoint")
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite's INTEGER has 64 bits, and is the row's own number


def upgrade() -> None:
    """Make the tables."""
    _evidence()
    _index()
    protect = {"sqlite": _protect_sqlite, "postgresql": _protect_postgres}[op.get_bind().dialect.name]
    for table in EVIDENCE:
        protect(table)


def _evidence() -> None:
    op.create_table(
        "entry",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "node",
        sa.Column("level", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("idx", LONG, primary_key=True, autoincrement=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "checkpoint",
        sa.Column("size", LONG, primary_key=True, autoincrement=False),
        sa.Column("note", sa.Text(), nullable=False),
    )


def _index() -> None:
    op.create_table(
        "dataset",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("used", sa.Text(), nullable=False),
        sa.Column("reserved", sa.Text(), nullable=False),
    )
    op.create_table(
        "job",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("dataset", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("idempotency_key", sa.String(200), unique=True),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("queued", sa.Integer(), nullable=False),
        sa.Column("committed", LONG),
        sa.Column("issued", LONG),
        sa.Column("owner", sa.String(200)),
        sa.Column("expires", sa.Float()),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
    )
    op.create_index("job_state", "job", ["state"])
    op.create_table(
        "token",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("revoked", LONG),
    )


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
