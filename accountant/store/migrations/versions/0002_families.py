"""Families share a budget, analysts have quotas, keys have ranges, certificates can be revoked.

What a dataset had used is now what its family has used. All else is read from the entries: an index never holds
anything that they do not.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from alembic import op
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from accountant.formats.canonical import decimal_string

revision, down_revision = "0002", "0001"
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Move the tables to families of datasets, and fill what is new from the entries."""
    datasets, jobs = _rows("dataset"), _rows("job")
    for row in (*datasets, *jobs):
        row["entry"] = _entry(row["seq"])
    op.drop_table("dataset")
    op.drop_table("job")
    for row in datasets:
        row["id"], row["commitment"] = row["entry"]["family"], row["entry"]["commitment"]
        row |= {"families": json.dumps([row["id"]]), "changed": None}
    op.bulk_insert(_dataset_table(), _columns(datasets, "name", "seq", "families", "commitment"))
    op.bulk_insert(_family_table(), _columns(datasets, "id", "seq", "changed", "used", "reserved"))
    op.bulk_insert(_analyst_table(), _analysts(datasets, jobs))
    op.bulk_insert(_job_table(), [{**row, "analyst": row["entry"]["by"]} for row in jobs])
    op.create_index("job_state", "job", ["state"])
    op.create_index("job_dataset", "job", ["dataset", "seq"])
    op.bulk_insert(_key_table(), _keys(_entry(0)))
    op.create_table(
        "revoked",
        sa.Column("issued", LONG, primary_key=True, autoincrement=False),
        sa.Column("seq", LONG, nullable=False),
    )


def _rows(table: str) -> list[dict[str, Any]]:
    found = op.get_bind().execute(sa.text(f"SELECT * FROM {table} ORDER BY seq"))
    return [dict(row) for row in found.mappings()]


def _entry(seq: int) -> dict[str, Any]:
    """What an entry says; nothing where there is none, as in a ledger that is only now made."""
    body = op.get_bind().execute(sa.text("SELECT body FROM entry WHERE seq = :seq"), {"seq": seq}).scalar()
    return {} if body is None else dict(json.loads(bytes(body)))


def _columns(rows: Iterable[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def _analysts(datasets: Iterable[dict[str, Any]], jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """For everybody who reserved anything, the sum of what was not released."""
    families = {row["name"]: row["entry"]["family"] for row in datasets}
    used: dict[tuple[str, str], dict[str, Any]] = {}
    for job in jobs:
        entry, key = job["entry"], (families[job["dataset"]], job["entry"]["by"])
        weight = 0 if job["state"] == "released" else 1
        used[key] = _sum(used.get(key), entry["price"], weight)
    return [
        {"family": family, "name": name, "share": None, "used": json.dumps(figures, sort_keys=True)}
        for (family, name), figures in used.items()
    ]


def _sum(total: dict[str, Any] | None, price: dict[str, Any], weight: int) -> dict[str, Any]:
    total = total or {"pure": "0", "unbounded": 0, "rdp": {}}
    return {
        "pure": _add(total["pure"], price["pure"], weight),
        "unbounded": total["unbounded"] + weight * price["unbounded"],
        "rdp": {order: _add(total["rdp"].get(order, "0"), figure, weight) for order, figure in price["rdp"].items()},
    }


def _add(total: str, figure: str, weight: int) -> str:
    return decimal_string(Decimal(total) + weight * Decimal(figure))


def _fingerprint(pem: str) -> str:
    """`accountant.keys.trust.fingerprint` as it was when this was written: a migration changes with nothing."""
    line = load_pem_public_key(pem.encode()).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def _keys(genesis: dict[str, Any]) -> list[dict[str, Any]]:
    """The two keys that the first entry names. They hold from there on."""
    pems = {role: genesis[role] for role in ("issuer", "log") if genesis}
    keyids = {role: _fingerprint(pem) for role, pem in pems.items()}
    rest = {"added": 0, "until": None, "ended": None}
    return [{"keyid": keyids[role], "role": role, "pem": pem, **rest} for role, pem in pems.items()]


def _dataset_table() -> sa.Table:
    return op.create_table(
        "dataset",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("families", sa.Text(), nullable=False),
        sa.Column("commitment", sa.String(64), nullable=False, unique=True),
    )


def _family_table() -> sa.Table:
    return op.create_table(
        "family",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("changed", LONG),
        sa.Column("used", sa.Text(), nullable=False),
        sa.Column("reserved", sa.Text(), nullable=False),
    )


def _analyst_table() -> sa.Table:
    return op.create_table(
        "analyst",
        sa.Column("family", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("share", sa.String(16)),
        sa.Column("used", sa.Text(), nullable=False),
    )


def _job_table() -> sa.Table:
    return op.create_table(
        "job",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("dataset", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("analyst", sa.String(200), nullable=False),
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


def _key_table() -> sa.Table:
    return op.create_table(
        "signing_key",
        sa.Column("keyid", sa.String(80), primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("pem", sa.Text(), nullable=False),
        sa.Column("added", LONG, nullable=False),
        sa.Column("until", LONG),
        sa.Column("ended", sa.String(16)),
    )
