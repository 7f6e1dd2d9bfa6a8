"""A long ledger to audit, made once: its evidence, its log's key, and random places in it."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path

import ledgers
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from accountant.system import signature_pool
from benchmarks.made_ledger import make
from dpserve_verify.audit.audit import EVERY, audit
from dpserve_verify.audit.tree_of_entries import Report, Tree
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.keys.verifier_keys import key_id
from dpserve_verify.log.notes import NoteSignature

COUNT = 2_100  # more than two steps of progress, and twice what is verified without helpers: of quarter steps
SEED = int.from_bytes(os.urandom(4))
RNG = np.random.default_rng(SEED)


@pytest.fixture(autouse=True)
def quarter_steps(monkeypatch) -> None:
    """For every test of a file that imports it: what would need four times as many entries happens with these."""
    monkeypatch.setattr("accountant.system.signature_pool.CHUNK", signature_pool.CHUNK // 4)
    monkeypatch.setattr("dpserve_verify.audit.audit.EVERY", EVERY // 4)


@lru_cache
def home() -> Path:
    folder = ledgers.scratch() / "long"
    make(folder, COUNT)
    return folder


@lru_cache
def evidence() -> tuple[list[bytes], list[tuple[int, str]], PublicKeys]:
    """Entries, checkpoints and keys of the long ledger."""
    connection = ledgers.raw(ledgers.copy(home(), ledgers.scratch() / "read"))
    bodies = [body for (body,) in connection.execute("SELECT body FROM entry ORDER BY seq")]
    filed = connection.execute("SELECT size, note FROM checkpoint ORDER BY size").fetchall()
    return bodies, filed, PublicKeys.from_json((home() / "trust.json").read_bytes())


@lru_cache
def begun() -> int:
    """The entry after the last registration: from here on there are jobs."""
    kinds = [json.loads(body)["type"] for body in evidence()[0][:1000]]
    return len(kinds) - kinds[::-1].index("dataset-registered")


def anywhere() -> int:
    """A random place among the jobs, told to who reads about a failure."""
    at = int(RNG.integers(begun() + 100, COUNT - 100))
    print(f"entry {at} of {COUNT}, seed {SEED}")
    return at


def judged(bodies: list[bytes], filed: list[tuple[int, str]], helpers: int = 2, **options) -> Report:
    return audit(enumerate(bodies), filed, evidence()[2], helpers=helpers, **options)


def log_key() -> Ed25519PrivateKey:
    key = load_pem_private_key((home() / "keys" / "log.pem").read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    return key


def note(size: int, root: bytes, *keys: Ed25519PrivateKey) -> str:
    """A checkpoint signed by each of these keys in the log's name."""
    origin = evidence()[2].origin
    text = f"{origin}\n{size}\n{encode_base64(root)}\n"
    lines = [NoteSignature(origin, key_id(origin, key.public_key()), key.sign(text.encode())).line() for key in keys]
    return f"{text}\n{''.join(lines)}"


def signed(bodies: list[bytes], since: int) -> list[tuple[int, str]]:
    """Checkpoints as the holder of the log's key would sign them anew, from entry `since` on."""
    key, tree, filed = log_key(), Tree(), evidence()[1][:since]
    for size, body in enumerate(bodies, 1):
        tree.append(body)
        if size > since:
            filed.append((size, note(size, tree.root(), key)))
    return filed


def kind_after(at: int, kind: str) -> int:
    bodies = evidence()[0]
    return next(seq for seq in range(at, COUNT) if json.loads(bodies[seq])["type"] == kind)


def replaced(items: list, at: int, item: object) -> list:
    return [*items[:at], item, *items[at + 1 :]]
