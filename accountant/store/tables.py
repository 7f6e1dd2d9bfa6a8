"""The ledger's tables.

`entry`, `node` and `checkpoint` are the evidence; triggers refuse to change them (a convenience: the tree is the
evidence). All others are an index that replaying the entries gives again, so admission need not read them all.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text

LONG = BigInteger().with_variant(Integer, "sqlite")  # so that an entry's index is SQLite's own row number
META = MetaData()
entry_table = Table(
    "entry",
    META,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)
node_table = Table(
    "node",
    META,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("idx", LONG, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)
# `kinds`: the newest generation of kinds of the entries up to it (`version_fence`).
checkpoint_table = Table(
    "checkpoint",
    META,
    Column("size", LONG, primary_key=True, autoincrement=False),
    Column("note", Text, nullable=False),
    Column("kinds", Integer, nullable=False),
)
# A dataset's rows belong to one family or, where families were joined, to several. `families`: their ids, JSON. `last`:
# of one that grew, how many blocks it has; `dropped`: of how many of them, from the first on, the rows are deleted.
dataset_table = Table(
    "dataset",
    META,
    Column("name", String(64), primary_key=True),
    Column("seq", LONG, nullable=False),
    Column("families", Text, nullable=False),
    Column("commitment", String(64), nullable=False, unique=True),
    Column("last", Integer),
    Column("dropped", Integer),
)
# Of a dataset that grows, the blocks that were appended: what was registered is block 1 and has no row here.
block_table = Table(
    "block",
    META,
    Column("dataset", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("seq", LONG, nullable=False),
    Column("commitment", String(64), nullable=False, unique=True),
    Column("records", Integer, nullable=False),
    Column("period", Text),
)
# People share a budget by family. `seq`: the entry that founded it; `changed`: the newest that changed its budget.
family_table = Table(
    "family",
    META,
    Column("id", String(36), primary_key=True),
    Column("seq", LONG, nullable=False),
    Column("changed", LONG),
    Column("used", Text, nullable=False),
    Column("reserved", Text, nullable=False),
)
# An analyst's part of a family's budget. `share`: the quota in force (None: none of their own); `used`: their price.
# The analyst "*" holds the quota of everybody who has none of their own.
analyst_table = Table(
    "analyst",
    META,
    Column("family", String(36), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("share", String(16)),
    Column("used", Text, nullable=False),
)
# `owner` and `expires`: who holds the job, and until when without a word, by the database's clock (seconds since 1970).
# `doubted`: when somebody first saw that this had passed. `waiting`: why a worker left a queued job for another.
# `trace`: the span that asked for it, where traces are on.
job_table = Table(
    "job",
    META,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("dataset", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("model", String(64), nullable=False),
    Column("analyst", String(200), nullable=False),
    Column("idempotency_key", String(200)),
    Column("request", String(64), nullable=False),
    Column("queued", Integer, nullable=False),
    Column("committed", LONG),
    Column("issued", LONG),
    Column("owner", String(200)),
    Column("expires", Float),
    Column("done", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("doubted", Float),
    Column("waiting", String(16)),
    Column("trace", String(55)),
    Index("job_state", "state"),
    Index("job_dataset", "dataset", "seq"),
    Index("job_key", "analyst", "idempotency_key", unique=True),
    Index("job_model", "model", "state", "seq"),
)
token_table = Table(
    "token",
    META,
    Column("hash", String(64), primary_key=True),
    Column("seq", LONG, nullable=False),
    Column("name", String(64), nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("revoked", LONG),
    Column("principal", String(200)),
)
# What principals may do. `kind`: everything, family, dataset or model; `name`: of it.
grant_table = Table(
    "granted",
    META,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("principal", String(200), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", String(64), nullable=False),
    Column("expires", String(20)),
    Column("revoked", LONG),
    Index("granted_principal", "principal"),
)
# Jobs that are asked for once a period. `token`: the entry of the token that made it, none at the command line; `job`:
# the newest that it asked for; `stopped`: the entry that refused more; `ended`: the one that removed it or its token.
schedule_table = Table(
    "schedule",
    META,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("name", String(64), nullable=False),
    Column("principal", String(200), nullable=False),
    Column("token", LONG),
    Column("job", LONG),
    Column("stopped", LONG),
    Column("ended", LONG),
)
# Keys that ever signed for this ledger. A key speaks for the entries added <= index < until.
key_table = Table(
    "signing_key",
    META,
    Column("keyid", String(80), primary_key=True),
    Column("role", String(8), nullable=False),
    Column("pem", Text, nullable=False),
    Column("added", LONG, nullable=False),
    Column("until", LONG),
    Column("ended", String(16)),
)
# Certificates that were revoked: the index of the `issued` entry, and of the `revoked` one.
revoked_table = Table(
    "revoked",
    META,
    Column("issued", LONG, primary_key=True, autoincrement=False),
    Column("seq", LONG, nullable=False),
)
EVIDENCE = (entry_table, node_table, checkpoint_table)
