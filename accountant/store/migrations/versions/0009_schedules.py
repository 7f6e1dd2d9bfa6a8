"""Schedules, which are entries now: before, they stood in a file of the home that nobody signed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0009", "0008"
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite's INTEGER has 64 bits, and is the row's own number


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "schedule",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("principal", sa.String(200), nullable=False),
        *(sa.Column(name, LONG) for name in ("token", "job", "stopped", "ended")),
    )
