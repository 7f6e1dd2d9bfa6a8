"""The audit: an independent reader of raw leaves and signed checkpoints, who trusts the pinned keys and nothing else.

It builds the tree again (`accountant.audit.tree_of_entries`), verifies every signature
(`accountant.audit.signature_pool`), compares every signed root, replays every entry (`accountant.audit.replay`), and
holds the derived index, the stored subtrees, the high-water mark and model certificates against what the entries give.
Entries are read one at a time; what is kept grows with datasets and jobs, the tree with the logarithm.

What it cannot find: an operator who rewrites the whole ledger and signs it anew, unless somebody kept a checkpoint
(`seen`) or a certificate from before.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Connection

from accountant import home as homes
from accountant.audit.checkpoints import Signed
from accountant.audit.index_check import compare_index
from accountant.audit.judge_models import Bundle, Champions, Models
from accountant.audit.replay import Replay
from accountant.audit.signature_pool import Checked, Signatures
from accountant.audit.tree_of_entries import Findings, Head, Heads, Report, StoredNodes, Tree
from accountant.errors import DpserveError, KeyInvalid, LedgerInvalid, VerificationError
from accountant.home import TRUST, Home
from accountant.keys.trust import PublicKeys
from accountant.log.last_seen import HighWater
from accountant.log.notes import parse_checkpoint
from accountant.store.store import Store, checkpoints, leaves, size

Leaf: TypeAlias = tuple[int, bytes]
Filed: TypeAlias = tuple[int, str]
Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with how many entries were judged, and how many there are (0: not known)."""

EVERY = 4096  # entries between two calls


def audit(
    entries: Iterable[Leaf],
    checkpoints: Iterable[Filed],
    trust: PublicKeys,
    *,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    mark: tuple[int, bytes] | None = None,
    database: Connection | None = None,
    progress: Progress | None = None,
    total: int = 0,
    helpers: int | None = None,
    champions: Champions = dict,
) -> Report:
    """Judge every entry and every checkpoint against pinned keys, believing nobody.

    Args:
        entries: (index, exact bytes), in order from 0.
        checkpoints: (tree size, signed note), in order of size.
        trust: the keys that the auditor pinned, from a way that is not this ledger's.
        bundles, champions: models whose certificates must belong to this ledger, and which of them answer.
        seen, mark: checkpoints from before, and a (tree size, root hash of 32 bytes), which the ledger must continue.
        database: where the derived index and the stored subtrees stand, to be compared too.
        progress: called every `EVERY` entries with how many were judged, and `total` (0: not known).
        helpers: processes that verify signatures (None: as many as pay); the report is the same with any number.

    Returns:
        Entries read, their root hash, and a line for each problem, at most `MOST_PROBLEMS`; none: the ledger is sound.

    Raises:
        DpserveError: the evidence could not be read to its end. What is wrong with it is in the report.
    """
    findings, tree, replay = Findings(), Tree(), Replay(trust)
    models, signed = Models(trust, findings, champions), Signed(replay.keys, findings)
    beside = [*models.take(bundles), *([Head(mark[0], 1, mark[1], "high-water mark")] if mark else [])]
    nodes = StoredNodes(database) if database is not None else None
    with Signatures(trust.origin, signed.guess, helpers) as signatures, _seldom_collected():
        filed = (signatures.check(checkpoints), signed.head)
        kept = (iter(_kept(seen, findings)), signed.kept)
        heads = Heads([filed, (iter(sorted(beside)), lambda head: head), kept], findings)
        heads.check(tree)  # a first start may have been cut at size 0
        for seq, body in entries:
            if seq != tree.size:
                findings.add(tree.size, f"entry {tree.size}: missing, the next one is numbered {seq}")
                break
            completed = tree.append(body)
            if nodes:
                nodes.expect(completed)
            try:
                models.check(seq, body, replay.read(seq, body), replay)
            except DpserveError as error:
                findings.add(seq, error.message)
            heads.check(tree)
            if progress and tree.size % EVERY == 0:
                progress(tree.size, total)
        signed.ended = True
        _end(findings, tree, replay, heads, models, nodes)
    for problem in () if database is None else compare_index(database, replay):
        findings.add(None, problem)
    return replace(findings.report(tree), notes=tuple(replay.notes()))


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """What a replay keeps is kept for good, and has no cycles: looking for some again and again takes a tenth of it."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _end(
    findings: Findings, tree: Tree, replay: Replay, heads: Heads, models: Models, nodes: StoredNodes | None
) -> None:
    if not tree.size:
        findings.add(0, "entry 0: missing, the ledger is empty")
    findings.forgive(replay.repairs.repaired)
    for problem in replay.repairs.problems():
        findings.add(None, problem)
    heads.check_end(tree)
    try:
        replay.keys.end(tree.size)
    except DpserveError as error:
        findings.add(None, error.message)
    models.check_end(replay)
    if nodes:
        nodes.check_end(findings)


def audit_home(home: Home, bundles: Iterable[Bundle] = (), seen: Iterable[str] = ()) -> Report:
    """The whole of an open home: evidence, index, high-water mark, trust file, and the models given.

    `bundles`, `seen`: as for `audit`. Raises LedgerUnavailable where the database cannot be read."""
    try:
        trust = home.trust
    except VerificationError:  # rows that are not what was signed are for the report to name
        trust = _trust_file(home.path)
    return _audit_store(home.ledger.log.database, home.path, trust, bundles, seen, None)


def audit_place(
    environment: Mapping[str, str] = os.environ,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    progress: Progress | None = None,
    champions: Champions = dict,
) -> Report:
    """As `audit_home`, for a home that may refuse to open: needs its trust file and no private key.

    `environment`: names home and database (`accountant.home.settings`). Raises KeyInvalid where the trust file is not
    to be had, LedgerUnavailable where the database cannot be read, InputError where another version made its tables."""
    path, url = homes.place(environment)
    database = Store(url)
    try:
        return _audit_store(database, path, _trust_file(path), bundles, seen, progress, champions)
    finally:
        database.close()


def _audit_store(
    database: Store,
    path: Path,
    trust: PublicKeys,
    bundles: Iterable[Bundle],
    seen: Iterable[str],
    progress: Progress | None,
    champions: Champions = dict,
) -> Report:
    problems, mark = _beside(path, trust)  # the mark first: it may only lag behind the snapshot
    try:
        with database.auditing() as connection:
            report = audit(
                leaves(connection),
                checkpoints(connection),
                trust, bundles=bundles, seen=seen, mark=mark, database=connection,
                progress=progress, total=size(connection), champions=champions,
            )  # fmt: skip
    except TypeError as error:  # the database itself checks no types
        raise LedgerInvalid(f"ledger database: a column holds something of another type ({error})") from error
    return replace(report, problems=(*report.problems, *problems))


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


def _kept(notes: Iterable[str], findings: Findings) -> list[Checked]:
    checkpoints = []
    for note in notes:
        try:
            checkpoints.append(Checked(parse_checkpoint(note).size, note, None))
        except DpserveError as error:
            findings.add(None, f"a checkpoint kept from before: {error.message}")
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.size)
