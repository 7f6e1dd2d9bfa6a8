"""A job may name labels: only a worker that has all of them takes it. The trace of who asked goes on in the worker."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0007", "0006"


def upgrade() -> None:
    """What waits already goes to any worker."""
    op.add_column("job", sa.Column("labels", sa.String(600)))
    op.add_column("job", sa.Column("trace", sa.String(55)))
