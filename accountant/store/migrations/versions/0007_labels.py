"""A job may name labels: only a worker that has all of them takes it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0007", "0006"


def upgrade() -> None:
    """What waits already goes to any worker."""
    op.add_column("job", sa.Column("labels", sa.String(600)))
