"""A version that comes after this one, whose tables have one column more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from accountant.store import migrations

NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    op.add_column("job", sa.Column("more", sa.Integer()))
"""
SHIPPED = migrations.FOLDER


def next_version(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let this process be that version."""
    steps = folder / "next-version"
    if not steps.exists():
        shutil.copytree(SHIPPED, steps)
        (steps / "versions" / "0002_more.py").write_text(NEXT)
    patch.setattr(migrations, "FOLDER", steps)
    patch.setattr(migrations, "HEAD", "0002")
    patch.setattr(migrations, "KNOWN", ("0001", "0002"))
