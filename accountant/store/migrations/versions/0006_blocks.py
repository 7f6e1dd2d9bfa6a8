"""Datasets grow by blocks, each with an account of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0006", "0005"
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """No dataset has grown yet."""
    op.add_column("dataset", sa.Column("last", sa.Integer))
    op.add_column("dataset", sa.Column("dropped", sa.Integer))
    op.create_table(
        "block",
        sa.Column("dataset", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("commitment", sa.String(64), nullable=False, unique=True),
        sa.Column("records", sa.Integer, nullable=False),
        sa.Column("period", sa.Text),
    )
