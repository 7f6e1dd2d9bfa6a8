"""A lease that ran out is doubted before its job is burned; a job that a worker left for another says so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"


def upgrade() -> None:
    """Two columns that are empty for what is there."""
    op.add_column("job", sa.Column("doubted", sa.Float()))
    op.add_column("job", sa.Column("waiting", sa.String(16)))
