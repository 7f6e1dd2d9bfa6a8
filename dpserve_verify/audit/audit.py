"""The audit: an independent reader of raw leaves and signed checkpoints, who trusts the pinned keys and nothing else.

It builds the tree again (`tree_of_entries`), verifies every signature (`checkpoints`), compares every signed root,
replays every entry (`replay`), and holds model certificates, and of a home what its database derived, against what the
entries give.
Entries are read one at a time; what is kept grows with datasets and jobs, the tree with the logarithm.

What it cannot find: an operator who rewrites the whole ledger and signs it anew, unless somebody kept a checkpoint
(`seen`) or a certificate from before.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeAlias

from dpserve_verify.audit.checkpoints import Checked, OneByOne, Signed
from dpserve_verify.audit.judge_models import Bundle, Champions, Models
from dpserve_verify.audit.replay import Replay
from dpserve_verify.audit.tree_of_entries import Findings, Head, Heads, Report, Tree
from dpserve_verify.errors import DpserveError
from dpserve_verify.faster import FASTER
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import parse_checkpoint

Leaf: TypeAlias = tuple[int, bytes]
Filed: TypeAlias = tuple[int, str]
Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with how many entries were judged, and how many there are (0: not known)."""

EVERY = 4096  # entries between two calls


class Stored(Protocol):
    """What a database derived from the entries."""

    def expect(self, completed: list[tuple[int, int, bytes]]) -> None:
        """Compare the subtrees (level, index, hash) that an entry completes."""

    def check_end(self, findings: Findings) -> None:
        """Report the first subtree that differs, after the last entry."""

    def compare_index(self, replay: Replay) -> Iterable[str]:
        """Find where the index is not what the entries give."""


def audit(
    entries: Iterable[Leaf],
    checkpoints: Iterable[Filed],
    trust: PublicKeys,
    *,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    mark: tuple[int, bytes] | None = None,
    stored: Stored | None = None,
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
        stored: a database's derived index and subtrees, to be compared too.
        progress: called every `EVERY` entries with how many were judged, and `total` (0: not known).
        helpers: processes that verify signatures, where a program has some (None: as many as pay).

    Returns:
        Entries read, their root hash, and a line for each problem, at most `MOST_PROBLEMS`; none: the ledger is sound,
        up to the first entry of a kind that this reader does not know, where there is one.

    Raises:
        DpserveError: the evidence could not be read to its end. What is wrong with it is in the report.
    """
    findings, tree, replay = Findings(), Tree(), Replay(trust)
    models, signed = Models(trust, findings, champions), Signed(replay.keys, findings)
    heads_to_keep = [*models.take(bundles), *([Head(mark[0], 1, mark[1], "high-water mark")] if mark else [])]
    opened = (FASTER.signatures or OneByOne)(trust.origin, signed.guess, helpers)
    with opened as signatures, _collect_seldom():
        filed = (signatures.check(checkpoints), signed.head)
        seen_checkpoints = (iter(_read_seen(seen, findings)), signed.kept)
        heads = Heads([filed, (iter(sorted(heads_to_keep)), lambda head: head), seen_checkpoints], findings)
        heads.check(tree)  # a first start may have been cut at size 0
        for seq, body in entries:
            if seq != tree.size:
                findings.add(tree.size, f"entry {tree.size}: missing, the next one is numbered {seq}")
                break
            completed = tree.append(body)
            if stored:
                stored.expect(completed)
            _judge(seq, body, findings, replay, models)
            heads.check(tree)
            if progress and tree.size % EVERY == 0:
                progress(tree.size, total)
        signed.ended = True
        _end(findings, tree, replay, heads, models, stored)
    for problem in () if stored is None or findings.newer is not None else stored.compare_index(replay):
        findings.add(None, problem)
    return replace(findings.report(tree), notes=tuple(replay.notes()))


def _judge(seq: int, body: bytes, findings: Findings, replay: Replay, models: Models) -> None:
    """Judge what an entry means; behind one of a newer version, what it says of the keys that sign what follows."""
    try:
        if findings.newer is None:
            models.check(seq, body, replay.read(seq, body), replay)
        else:
            replay.read_key(seq, body)
    except DpserveError as error:
        if "unknown" in error.details:
            findings.newer = seq
        else:
            findings.add(seq, error.message)


@contextmanager
def _collect_seldom() -> Iterator[None]:
    """Collect garbage seldom within the body: what a replay keeps stays, and has no cycles. Looking for some takes a
    tenth of it.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _end(findings: Findings, tree: Tree, replay: Replay, heads: Heads, models: Models, stored: Stored | None) -> None:
    if not tree.size:
        findings.add(0, "entry 0: missing, the ledger is empty")
    heads.check_end(tree)
    try:
        replay.keys.end(tree.size)
    except DpserveError as error:
        findings.add(None, error.message)
    for problem in replay.attacks.problems(replay.keys.revocations):
        findings.add(None, problem)
    models.check_end(replay)
    if stored:
        stored.check_end(findings)


def _read_seen(notes: Iterable[str], findings: Findings) -> list[Checked]:
    checkpoints = []
    for note in notes:
        try:
            checkpoints.append(Checked(parse_checkpoint(note).size, note, None))
        except DpserveError as error:
            findings.add(None, f"a checkpoint kept from before: {error.message}")
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.size)
