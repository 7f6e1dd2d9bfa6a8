"""Index: the latest log entry per subject, in a file beside the keys, outside the database.

A row of the index that is set back says what an older entry said, and every signature still verifies. That it is old is
told by this file alone: a number for each entry, written under the lock of the high-water mark after an entry is, and
brought up to date from the entries where another host, or a process that was cut off, has written meanwhile. What is
read then must give the root that was signed.

Whoever writes to the ledger holds its database, so to them the file is exactly what was signed. It may be ahead of a
reader, who takes no notice of what came after the tree that it reads.

Families begin with the entry that founds them, and so do the accounts of rows that they keep aside; jobs with their
reservation, tokens, grants and schedules with the entries that make them. What an analyst used of an account begins
with no entry of its own, nor does a name that was used: `accountant.log.spenders` finds them by name. Either file is a
cache: without it, after a start of the machine, and beside another ledger, both are made anew.

Rare entries are chained through it: keys, revocations, quotas, learners of others, what is archived, withdrawn or
charged for releases made elsewhere are few, and whoever asks reads all of them.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, select

from accountant.log.spenders import Spenders, spender
from accountant.store.store import node_reader, stream
from accountant.store.tables import entry_table
from dpserve_verify.errors import LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical_bytes import Key
from dpserve_verify.system.files import PRIVATE

HEADER = Struct("<8s36s32sq")  # form, start of the machine, root, size
SLOT = Struct("<q")
START = 128  # bytes before the first number
MAX_READ_SLOTS = 1 << 13  # so near each other, slots are read at once
FORM = b"dpnewst9"
SPENDERS = "spenders.bin"
RAREST = 0  # the number of the newest rare entry; the genesis itself begins nothing
AFTER = b'{"after":['  # how entries begin that say what families had used after them
_DECODER = json.JSONDecoder()
_TYPE, _RESERVATION, _SCHEDULE = Key("type"), Key("reservation"), Key("schedule")
_STEPS = frozenset({"started", "resumed", "committed", "burned", "released", "issued"})
_NAMING = {
    "token-revoked": "created",
    "grant-revoked": "grant",
    "revoked": "issued",
    "schedule-stopped": "schedule",
    "schedule-removed": "schedule",
}
_RARE = frozenset(
    {
        *("key-added", "key-retired", "key-compromised", "revoked", "quota-set"),
        *("dataset-archived", "dataset-unarchived", "model-archived", "model-unarchived"),
        *("dataset-withdrawn", "charged", "learner-admitted", "learner-removed"),
    }
)
_PERSON = "person-total"
_CHARGING = frozenset({"reserved", "released"})


@lru_cache(maxsize=1)
def _boot() -> bytes:
    """Return an identifier of this boot of the machine, 36 bytes: what was written before it may have reached the disk
    in part. Without /proc, one of this process.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36].ljust(36)
    except OSError:
        return uuid.uuid4().hex.encode().ljust(36)


def account_number(begun: int, part: str | None = None) -> int:
    """Return the slot number of what the entry `begun` began, or about the account of a part of that family."""
    return 2 * begun + (part is not None)


def accounts_of(line: Mapping[str, Any]) -> list[int]:
    """Return the account numbers of a line of `after_of`: its family's, then those of the blocks under `also`."""
    first = account_number(line["family"], line.get("part"))
    return (
        [first, *(account_number(family, line.get("part")) for family in line["also"])] if "also" in line else [first]
    )


def principal_name(principal: str) -> bytes:
    """Return the name under which the newest entry is kept that made a token which acts for a principal, or is called
    after it.
    """
    return spender(-1, principal)


def person_total_name(family: str) -> bytes:
    """Return the name under which the newest entry is kept that says what one person's total is, in a family."""
    return spender(0, family)


def subjects_of(seq: int, body: bytes, lines: list[dict[str, Any]] | None = None) -> tuple[list[int], list[bytes]]:
    """List what the entry `seq` is about, all of it begun before: numbers (`account_number`), and names (`spender`) of
    who was charged. `lines`: as `after_of` the entry, where they are known.

    An entry that is none of ours is about nothing; that it stands there is the audit's to say.
    """
    kind, lines = _TYPE.last_text(body) or "", after_of(body) if lines is None else lines
    try:
        numbers: list[Any] = [number for line in lines for number in accounts_of(line)]
        names: list[bytes] = []
        if kind in _STEPS and (job := _RESERVATION.first_integer(body)) is not None:
            numbers = [account_number(job), *numbers]
        elif kind in _NAMING:
            numbers = [account_number(json.loads(body)[_NAMING[kind]])]
        if kind == "reserved" and _SCHEDULE.may_stand_in(body) and "schedule" in (value := json.loads(body)):
            numbers.append(account_number(value["schedule"]["entry"]))
        if kind in _CHARGING:
            names = [spender(number, line["analyst"]["name"]) for line in lines for number in accounts_of(line)]
        elif kind == _PERSON:
            names = [person_total_name(json.loads(body)["family"])]
        elif kind == "token-created":
            made = json.loads(body)
            names = [principal_name(f"token:{made['name']}"), principal_name(made["principal"])]
    except (LookupError, TypeError, ValueError):
        return [], []
    return [number for number in numbers if type(number) is int and 0 <= number < 2 * seq], names


def _slots(
    entries: Iterable[tuple[int, bytes]],
    rare: int = 0,
    balances: Mapping[int, list[dict[str, Any]]] = MappingProxyType({}),
) -> tuple[dict[int, int], dict[bytes, int]]:
    """Collect the latest entry by slot number and by name. `rare`: the newest rare entry before these; `said`: what is
    known of `after_of` them.
    """
    slots, charged = dict[int, int](), dict[bytes, int]()
    for seq, body in entries:
        numbers, names = subjects_of(seq, body, balances.get(seq))
        slots |= dict.fromkeys(numbers, seq)
        charged |= dict.fromkeys(names, seq)
        if _TYPE.last_text(body) in _RARE:
            slots[rare_number(seq)], rare = rare, seq
    return {**slots, RAREST: rare}, charged  # the chain's end last: who is cut off before it has changed nothing


def rare_number(rare: int) -> int:
    """Number the slot that holds the rare entry before this one: that of a part, which a rare entry has none of."""
    return 2 * rare + 1


def signed_entries(
    connection: Connection, start: int, size: int, root: bytes, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (index, bytes) of the entries from `start` on, below `end`. LedgerInvalid at the end, where with the
    subtrees before them they do not give the signed tree (size, root).
    """
    read = node_reader(connection)
    last = {level: read(level, (start >> level) - 1) for level in range(start.bit_length()) if start >> level & 1}
    query = select(entry_table).where(entry_table.c.seq >= start).order_by(entry_table.c.seq)
    for seq, raw in stream(connection, query if end is None else query.where(entry_table.c.seq < end)):
        body = bytes(raw)
        for level, _, digest in merkle.new_nodes(seq, merkle.leaf_hash(body), lambda level, _: last[level]):
            last[level] = digest
        yield seq, body
    if merkle.root(size, lambda level, _: last[level]) != root:
        raise LedgerInvalid(f"ledger: the entries from {start} on are not those that were signed")


def after_of(body: bytes) -> list[dict[str, Any]]:
    """Return the balances that an entry records: [{"family", "changed", "used", "reserved"}], "part", "analyst" and
    "also" with them; [] where nothing.
    """
    if not body.startswith(AFTER):
        return []
    balances: list[dict[str, Any]] = _DECODER.raw_decode(body.decode("ascii"), len(AFTER) - 1)[0]
    return balances


@dataclass(frozen=True)
class Newest:
    """The file at `path`. It is written under the lock of the mark alone."""

    path: Path

    @cached_property
    def _spenders(self) -> Spenders:
        return Spenders(self.path.with_name(SPENDERS))

    def spent(self, accounts: Sequence[int], analyst: str) -> list[int]:
        """Return, per account number, the latest entry that charged or refunded the analyst; 0 where there is none."""
        try:
            return self._spenders.of([spender(account, analyst) for account in accounts])
        except OSError as error:
            raise LedgerUnavailable(f"{self._spenders.path}: cannot be read ({error.strerror})") from error

    def person_total(self, family: str) -> int:
        """Return the newest entry that says what one person's total over all blocks is, in a family; 0: none does."""
        (entry,) = self.spent([0], family)
        return entry

    def named(self, principal: str) -> int:
        """Return the newest entry that made a token which acts for a principal, or is called after it; 0: none did."""
        try:
            (entry,) = self._spenders.of([principal_name(principal)])
        except OSError as error:
            raise LedgerUnavailable(f"{self._spenders.path}: cannot be read ({error.strerror})") from error
        return entry

    def catch_up(
        self,
        connection: Connection,
        size: int,
        root: bytes,
        lock: Callable[[], AbstractContextManager[object]],
        writes: bool = False,
    ) -> None:
        """Read the entries not yet in the file, up to the signed tree (size, root). LedgerInvalid where they do not
        give that root. `lock`: of the mark; it is held to write the file, not while entries are read. `writes`: the
        caller keeps others from appending; else the file may be ahead, and stays so.
        """
        while (head := self._head()) != (size, root):
            covered, covered_root = head
            if covered > size and not writes:
                return
            if not 0 < covered < size or merkle.root(covered, node_reader(connection)) != covered_root:
                covered = 0
            rare = self.newest_rare(covered) if covered else 0
            slots = _slots(signed_entries(connection, covered, size, root), rare)
            with lock():
                if self._head() == head:  # else another was faster
                    if not covered:
                        self.path.unlink(missing_ok=True)
                        self._spenders.begin()
                    self._write(*slots, size, root)

    def note(
        self,
        before: tuple[int, bytes],
        entries: Iterable[tuple[int, bytes]],
        balances: Mapping[int, list[dict[str, Any]]],
        size: int,
        root: bytes,
        rare: int,
    ) -> None:
        """Take in entries that were just written, which bring the tree from `before` to (size, root), under the lock of
        the mark. Nothing where another has read them meanwhile. `balances`: what they say of accounts after them;
        `rare`: the newest rare entry before them.
        """
        if self._head() == before:
            self._write(*_slots(entries, rare, balances), size, root)

    def newest_rare(self, size: int) -> int:
        """Return the newest rare entry of the tree of `size` entries."""
        (newest,) = self.of([RAREST])
        while newest >= max(size, 1):  # written after it, or by a process that was cut off before the head
            (newest,) = self.of([rare_number(newest)])
        return newest

    def rare(self, newest: int, known: int = 0) -> list[int]:
        """Return the rare entries behind `known` up to `newest`, the oldest first."""
        entries = []
        while newest > max(known, 0):
            entries.append(newest)
            (newest,) = self.of([rare_number(newest)])
        return entries[::-1]

    def of(self, numbers: Sequence[int]) -> list[int]:
        """Return the latest entry per slot number (`account_number`); 0 where none was written since."""
        if not numbers:
            return []
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LedgerUnavailable(f"{self.path}: cannot be read ({error.strerror})") from error
        try:
            low = min(numbers)
            if max(numbers) - low < MAX_READ_SLOTS:  # most of a window's blocks stand near each other
                raw = os.pread(fd, SLOT.size * (max(numbers) - low + 1), START + SLOT.size * low)
                ends = len(raw) // SLOT.size + low
                return [SLOT.unpack_from(raw, SLOT.size * (each - low))[0] if each < ends else 0 for each in numbers]
            slots = (os.pread(fd, SLOT.size, START + SLOT.size * each) for each in numbers)
            return [SLOT.unpack(each)[0] if len(each) == SLOT.size else 0 for each in slots]
        finally:
            os.close(fd)

    def _head(self) -> tuple[int, bytes]:
        """Return the (size, root) that the file covers; size 0 where it must be rebuilt."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                raw = os.read(fd, HEADER.size)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return 0, b""
        except OSError as error:
            raise LedgerUnavailable(f"{self.path}: cannot be read ({error.strerror})") from error
        if len(raw) != HEADER.size:
            return 0, b""
        form, boot, root, size = HEADER.unpack(raw)
        is_usable = (form, boot) == (FORM, _boot()) and self._spenders.exists()
        return (size, root) if is_usable else (0, b"")

    def _write(self, slots: Mapping[int, int], charged: Mapping[bytes, int], size: int, root: bytes) -> None:
        """Write the slots, then the head: a process that is cut off before it leaves one that asks for the same entries
        again.
        """
        try:
            self._spenders.put(charged)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            try:
                for begun, seq in slots.items():
                    os.pwrite(fd, SLOT.pack(seq), START + SLOT.size * begun)
                os.pwrite(fd, HEADER.pack(FORM, _boot(), root, size), 0)
            finally:
                os.close(fd)
        except OSError as error:
            raise LedgerUnavailable(f"{self.path}: cannot be written ({error.strerror})") from error
