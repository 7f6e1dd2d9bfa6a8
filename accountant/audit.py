"""The audit: an independent reader of raw leaves and signed checkpoints, who trusts the pinned keys and nothing else.

It builds the tree again (`accountant.rebuild`), compares every signed root, replays every entry (`accountant.replay`),
and holds the derived index, the stored subtrees, the high-water mark and model certificates against what the
entries give. Entries are read one at a time; what is kept grows with datasets and jobs, the tree with the logarithm.

What it cannot find: an operator who rewrites the whole ledger and signs it anew, unless somebody kept a checkpoint
(`seen`) or a certificate from before.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from accountant import home as homes
from accountant.certificate import Certificate, verify
from accountant.errors import DpserveError, KeyInvalid, LedgerInvalid, VerificationError
from accountant.highwater import HighWater
from accountant.home import TRUST, Home
from accountant.index import compare_index
from accountant.keys import PublicKeys
from accountant.notes import parse_checkpoint, verify_checkpoint
from accountant.proofs import parse_proof
from accountant.rebuild import Findings, Head, Heads, Report, StoredNodes, Tree
from accountant.replay import Replay
from accountant.store import Store, checkpoints, leaves

Leaf = tuple[int, bytes]
Filed = tuple[int, str]
Bundle = tuple[str, bytes, bytes, bytes]
"""A model's name, envelope, proof and ONNX bytes."""


def audit(
    entries: Iterable[Leaf],
    checkpoints: Iterable[Filed],
    trust: PublicKeys,
    *,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    mark: tuple[int, bytes] | None = None,
    database: Connection | None = None,
) -> Report:
    """Judge leaves (index, exact bytes) and checkpoints (size, note), both in order, against pinned keys.

    `bundles`: models whose certificates must belong to this ledger. `seen`: checkpoints kept from before, which it must
    continue. `mark`: the high-water mark. `database`: where the derived index and the stored subtrees stand.
    """
    findings, tree, replay = Findings(), Tree(), Replay(trust)
    models = Models(trust, findings)
    others = [*models.take(bundles), *_seen(seen, trust, findings)]
    others += [Head(mark[0], 1, mark[1], "high-water mark")] if mark else []
    heads = Heads(merge(_signed(checkpoints, trust, findings), iter(sorted(others))), findings)
    nodes = StoredNodes(database) if database is not None else None
    heads.check(tree)  # a first start may have been cut at size 0
    for seq, body in entries:
        if seq != tree.size:
            findings.add(tree.size, f"entry {tree.size}: missing, the next one is numbered {seq}")
            break
        completed = tree.append(body)
        if nodes:
            nodes.check(seq, completed, findings)
        _judge(replay, models, seq, body, findings)
        heads.check(tree)
    _end(findings, tree, replay, heads, models, nodes)
    if database is not None:
        for problem in compare_index(database, replay):
            findings.add(None, problem)
    return findings.report(tree)


def _judge(replay: Replay, models: Models, seq: int, body: bytes, findings: Findings) -> None:
    try:
        models.check(seq, body, replay.read(seq, body))
    except DpserveError as error:
        findings.add(seq, error.message)


def _end(
    findings: Findings, tree: Tree, replay: Replay, heads: Heads, models: Models, nodes: StoredNodes | None
) -> None:
    if not tree.size:
        findings.add(0, "entry 0: missing, the ledger is empty")
    heads.check_end(tree)
    models.check_end(replay)
    if nodes:
        nodes.check_end(findings)


class Models:
    """Certificates beside the ledger: each verifies, and speaks of the reservation that the ledger holds."""

    def __init__(self, trust: PublicKeys, findings: Findings) -> None:
        self._trust, self._findings = trust, findings
        self._waiting: dict[int, list[tuple[str, Certificate]]] = {}

    def take(self, bundles: Iterable[Bundle]) -> list[Head]:
        """Verify each bundle; the tree heads that their proofs bring along."""
        heads = []
        for name, envelope, proof, model in bundles:
            try:
                text = proof.decode("utf-8")
                found = verify(envelope, text, model, self._trust)
                checkpoint = parse_checkpoint(parse_proof(text).checkpoint_note)
            except (DpserveError, UnicodeDecodeError) as error:
                self._findings.add(None, f"model {name}: {error}")
                continue
            self._waiting.setdefault(found.reservation, []).append((name, found))
            heads.append(Head(checkpoint.size, 1, checkpoint.root, f"the proof of model {name}"))
        return heads

    def check(self, seq: int, body: bytes, value: Mapping[str, Any]) -> None:
        for name, found in self._waiting.get(seq, ()):
            predicate, leaf = found.statement["predicate"], hashlib.sha256(b"\x00" + body).hexdigest()
            plan = [{key: part for key, part in run.items() if key != "library"} for run in predicate["mechanisms"]]
            if predicate["ledger"]["leaf"] != leaf or plan != value.get("plan"):
                self._findings.add(None, f"model {name}: its certificate is not about what entry {seq} reserved")

    def check_end(self, replay: Replay) -> None:
        for seq, waiting in self._waiting.items():
            job = replay.jobs.get(seq)
            for name, found in waiting:
                if job is None or job.issued != found.issued:
                    self._findings.add(None, f"model {name}: entry {found.issued} is not what job {seq} was issued as")


def audit_models(bundles: Iterable[Bundle], trust: PublicKeys) -> tuple[str, ...]:
    """Problems of certificates alone, without a ledger at hand: what `dpserve verify` finds, for many."""
    findings = Findings()
    Models(trust, findings).take(bundles)
    return tuple(problem for _, problem in findings.found)


def audit_home(home: Home, bundles: Iterable[Bundle] = (), seen: Iterable[str] = ()) -> Report:
    """The whole of an open home: evidence, index, high-water mark, trust file, and the models given."""
    return _audit_store(home.ledger.log.database, home.path, home.trust, bundles, seen)


def audit_place(
    environment: Mapping[str, str] = os.environ, bundles: Iterable[Bundle] = (), seen: Iterable[str] = ()
) -> Report:
    """As `audit_home`, for a home that may refuse to open: needs its trust file and no private key."""
    path, url = homes.place(environment)
    database = Store(url)
    try:
        return _audit_store(database, path, _trust_file(path), bundles, seen)
    finally:
        database.close()


def _audit_store(
    database: Store, path: Path, trust: PublicKeys, bundles: Iterable[Bundle], seen: Iterable[str]
) -> Report:
    problems, mark = _beside(path, trust)  # the mark first: it may only lag behind the snapshot
    try:
        with database.reading() as connection:
            report = audit(
                leaves(connection),
                checkpoints(connection),
                trust, bundles=bundles, seen=seen, mark=mark, database=connection,
            )  # fmt: skip
    except TypeError as error:  # the database itself checks no types
        raise LedgerInvalid(f"ledger database: a column holds something of another type ({error})") from error
    return Report(report.entries, report.root, (*report.problems, *problems), report.first)


def _beside(path: Path, trust: PublicKeys) -> tuple[list[str], tuple[int, bytes] | None]:
    """Problems of what stands beside the ledger, and the mark."""
    problems, mark = [], None
    try:
        if _trust_file(path) != trust:
            problems.append(f"{TRUST}: names other keys than those in use")
    except KeyInvalid as error:
        problems.append(error.message)
    try:
        mark = HighWater(homes.mark(path)).read()
        if mark is None:
            problems.append("high-water mark: is gone; a rolled-back ledger would not be found")
    except VerificationError as error:
        problems.append(error.message)
    return problems, mark


def _trust_file(path: Path) -> PublicKeys:
    try:
        return PublicKeys.from_json((path / TRUST).read_bytes())
    except OSError as error:
        raise KeyInvalid(f"{TRUST}: cannot be read ({error.strerror})") from error


def _signed(checkpoints: Iterable[Filed], trust: PublicKeys, findings: Findings) -> Iterator[Head]:
    """The heads of the checkpoints that are signed by the log's key, in order of size."""
    last, key = -1, trust.log_key
    for size, note in checkpoints:
        try:
            found = verify_checkpoint(note, trust.origin, key)
        except DpserveError as error:
            findings.add(max(size - 1, 0), f"entry {max(size - 1, 0)}: the checkpoint of size {size}: {error.message}")
            continue
        if found.size != size or size <= last:
            findings.add(max(size - 1, 0), f"entry {max(size - 1, 0)}: a checkpoint of size {size} is out of place")
            continue
        last = size
        yield Head(size, 0, found.root, f"the checkpoint of size {size}")


def _seen(notes: Iterable[str], trust: PublicKeys, findings: Findings) -> Iterator[Head]:
    for note in notes:
        try:
            found = verify_checkpoint(note, trust.origin, trust.log_key)
        except DpserveError as error:
            findings.add(None, f"a checkpoint kept from before: {error.message}")
            continue
        yield Head(found.size, 2, found.root, "a checkpoint kept from before")
