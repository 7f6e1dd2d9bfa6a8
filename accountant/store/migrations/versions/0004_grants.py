"""Tokens act for principals, who have grants; an idempotency key belongs to who gave it, and to nobody else."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JOB = (
    "seq, dataset, state, model, analyst, idempotency_key, request, queued, committed, issued, owner, expires, done, "
    "total, doubted, waiting"
)


def upgrade() -> None:
    """Tokens from before act for themselves alone; keys of jobs stay whose they were."""
    op.add_column("token", sa.Column("principal", sa.String(200)))
    op.create_table(
        "granted",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("principal", sa.String(200), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("expires", sa.String(20)),
        sa.Column("revoked", LONG),
    )
    op.create_index("granted_principal", "granted", ["principal"])
    # SQLite cannot drop what made the key unique over everybody: the table is made anew.
    op.rename_table("job", "job_before")
    op.drop_index("job_state", "job_before")
    op.drop_index("job_dataset", "job_before")
    _job_table()
    op.execute(f"INSERT INTO job ({_JOB}) SELECT {_JOB} FROM job_before")
    op.drop_table("job_before")
    op.create_index("job_state", "job", ["state"])
    op.create_index("job_dataset", "job", ["dataset", "seq"])
    op.create_index("job_key", "job", ["analyst", "idempotency_key"], unique=True)


def _job_table() -> None:
    op.create_table(
        "job",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
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
    )
