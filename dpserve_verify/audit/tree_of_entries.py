"""The tree once more, from raw leaves and by other code than `log.merkle`, held against all who vouch for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from dpserve_verify.errors import DpserveError, VerificationError
from dpserve_verify.formats.canonical import encode_base64

MOST_PROBLEMS = 100


@dataclass(frozen=True)
class Report:
    """`root`: of the tree of all entries, as a checkpoint spells it. `first`: the first wrong entry, where one is.
    `notes`: what is no problem, and what a reader should know. `lost`: of a home, what was paid for and has no files
    there any more: a loss, but none of the ledger's. `newer`: the first entry that a newer version wrote, where one
    did: from there this reader sees that the tree is the signed one, and no more.
    """

    entries: int
    root: str
    problems: tuple[str, ...]
    first: int | None = None
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    newer: int | None = None

    @property
    def ok(self) -> bool:
        """Return whether all of it is known and the audit found no problem."""
        return not self.problems and self.newer is None

    @property
    def exit_code(self) -> int:
        """Return that of a command: 0 sound, 4 not sound, 1 where a newer version must be asked."""
        return VerificationError.exit_code if self.problems else DpserveError.exit_code if not self.ok else 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as the command line prints it: {"entries", "root", "ok", "problems", "first", "notes",
        "lost"}, and "newer" where there is such an entry.
        """
        report = {"entries": self.entries, "root": self.root, "ok": self.ok, "problems": list(self.problems)}
        report |= {"first": self.first, "notes": list(self.notes), "lost": list(self.lost)}
        return report if self.newer is None else {**report, "newer": self.newer}

    @property
    def verdict(self) -> str:
        """Put the result into words: sound or not, and how much is lost."""
        lost = f", but {len(self.lost)} of what was paid for {'is' if len(self.lost) == 1 else 'are'} lost"
        sound = "sound" if self.newer is None else f"sound up to entry {self.newer}; from there of a newer version"
        return ("NOT SOUND" if self.problems else sound) + (lost if self.lost else "")


class Head(NamedTuple):
    """A tree that somebody vouches for: its size, its root, and who says so.

    `rank`: how far it is from the hands of who may have written the ledger anew. 0: in it, 1: beside it, 2: elsewhere.
    """

    size: int
    rank: int
    root: bytes
    what: str


class Sized(Protocol):
    """What has the size of a tree."""

    @property
    def size(self) -> int:
        """Return the number of entries in the tree."""


Judge: TypeAlias = Callable[[Any], Head | None]


@dataclass
class Findings:
    """Problems with the entry each is about (None: none of them). `newer`: from here on nobody can say what is wrong
    with an entry, nor with what follows from all of them.
    """

    found: list[tuple[int | None, str]] = field(default_factory=list)
    newer: int | None = None

    @property
    def full(self) -> bool:
        """Return whether there are so many problems that there is no use in looking for more."""
        return len(self.found) >= MOST_PROBLEMS

    def add(self, entry: int | None, problem: str, of_tree: bool = False) -> None:
        """Add a problem about an entry (None: about none). Of more than MOST_PROBLEMS the last is dropped, or gives way
        to one about an earlier entry. `of_tree`: whatever entries mean.
        """
        if self.newer is not None and not of_tree and (entry is None or entry >= self.newer):
            return
        if not self.full:
            self.found.append((entry, problem))
        elif entry is not None and all(about is None or entry < about for about, _ in self.found):
            self.found[-1] = entry, problem

    def report(self, tree: Tree) -> Report:
        """Return the report on the tree: the first wrong entry comes first; problems about no entry come last."""
        ordered = sorted(self.found, key=lambda each: (each[0] is None, each[0] or 0))
        first = ordered[0][0] if ordered else None
        problems = tuple(problem for _, problem in ordered)
        return Report(tree.size, encode_base64(tree.root()), problems, first, newer=self.newer)


class Tree:
    """RFC 6962 by its definition: the complete subtrees from the left, largest first. Memory O(log n)."""

    def __init__(self) -> None:
        self.size = 0
        self._complete: list[tuple[int, bytes]] = []

    def append(self, body: bytes) -> list[tuple[int, int, bytes]]:
        """Return the subtrees (level, index, hash) that this leaf completes."""
        level, index, digest = 0, self.size, hashlib.sha256(b"\x00" + body).digest()
        completed = [(level, index, digest)]
        while self._complete and self._complete[-1][0] == level:
            digest = hashlib.sha256(b"\x01" + self._complete.pop()[1] + digest).digest()
            level, index = level + 1, index >> 1
            completed.append((level, index, digest))
        self._complete.append((level, digest))
        self.size += 1
        return completed

    def root(self) -> bytes:
        """Return the root hash, 32 bytes (RFC 6962 section 2.1)."""
        if not self._complete:
            return hashlib.sha256(b"").digest()
        smaller = reversed(self._complete)
        _, digest = next(smaller)
        for _, left_digest in smaller:
            digest = hashlib.sha256(b"\x01" + left_digest + digest).digest()
        return digest


class Heads:
    """Compares what was signed with the growing tree. `sources`: each in order of size, those of a lower rank first.

    A checkpoint is judged (`judge` gives the head, None for what is no evidence) when the tree has come to its size and
    not before: which key must have signed it depends on the entries below.
    """

    def __init__(self, sources: Iterable[tuple[Iterator[Sized], Judge]], findings: Findings) -> None:
        self._sources, self._findings = [_Source(items, judge) for items, judge in sources], findings
        self._agreed, self._broken = [0, 0, 0], 3

    def check(self, tree: Tree) -> None:
        """Compare every signed head of at most the tree's size with the tree. What differs goes to the findings."""
        for source in self._sources:
            while source.next is not None and source.next.size <= tree.size:
                head = source.take()
                if head is not None:
                    self._compare(head, tree)

    def _compare(self, head: Head, tree: Tree) -> None:
        """Compare the tree with a head of its size. A rewritten log signs whatever is within its reach: only evidence
        of the same rank narrows down where it departs.
        """
        if head.root == tree.root():
            self._agreed[head.rank] = head.size
        elif head.rank < self._broken:
            self._broken = head.rank
            first = max(self._agreed[head.rank :])
            first = first if first < head.size else 0  # two of one rank and size contradict each other
            which = f"entry {first}" + (f" to {head.size - 1}" if head.size - 1 > first else "")
            self._findings.add(first, f"{which}: not what was signed; {head.what} has another root", of_tree=True)

    def check_end(self, tree: Tree) -> None:
        """Check at the last entry that no head signs more than there is, and that the newest signs all of it."""
        beyond = [head for source in self._sources if (head := self._first(source)) is not None]
        if beyond:
            problem = f"entry {tree.size}: missing; {min(beyond).what} signs {min(beyond).size} entries"
            self._findings.add(tree.size, problem, of_tree=True)
        elif max(self._agreed) < tree.size and self._broken == 3:
            first = max(self._agreed)
            self._findings.add(first, f"entry {first}: stands under no signed checkpoint", of_tree=True)

    def _first(self, source: _Source) -> Head | None:
        """Return the first head of a tree larger than the ledger."""
        while source.next is not None and not self._findings.full:
            head = source.take()
            if head is not None:
                return head
        return None


class _Source:
    """Checkpoints or heads in order; `next` is the one whose turn comes next."""

    def __init__(self, items: Iterator[Sized], judge: Judge) -> None:
        self._items, self._judge = items, judge
        self.next = next(items, None)

    def take(self) -> Head | None:
        assert self.next is not None
        head = self._judge(self.next)
        self.next = next(self._items, None)
        return head
