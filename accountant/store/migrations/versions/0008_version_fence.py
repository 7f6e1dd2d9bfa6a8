"""Beside each checkpoint, the newest kind of entry up to it; a writer that leaves it out is older than these tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0008", "0007"
PROBLEM = "checkpoint: a newer dpserve has written to this ledger, and this version may not"


def upgrade() -> None:
    """Add the column, and the trigger that refuses who leaves it out: versions that know no fence."""
    op.add_column("checkpoint", sa.Column("kinds", sa.Integer()))
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER checkpoint_says_kinds BEFORE INSERT ON checkpoint WHEN NEW.kinds IS NULL "
            f"BEGIN SELECT RAISE(ABORT, '{PROBLEM}'); END"
        )
        return
    op.execute(
        f"CREATE FUNCTION says_kinds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{PROBLEM}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER checkpoint_says_kinds BEFORE INSERT ON checkpoint FOR EACH ROW WHEN (NEW.kinds IS NULL) "
        "EXECUTE FUNCTION says_kinds()"
    )
