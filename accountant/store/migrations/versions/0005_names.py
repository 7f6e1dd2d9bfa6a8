"""Whose a model's name is, is looked up at every reservation: at once, however many jobs there are."""

from __future__ import annotations

from alembic import op

revision, down_revision = "0005", "0004"


def upgrade() -> None:
    """One index; what it is asked for stands in the entries."""
    op.create_index("job_model", "job", ["model", "state", "seq"])
