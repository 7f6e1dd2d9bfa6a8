"""Datasets that grow, as the entries leave them: their blocks, and which of them a reservation's words mean. Judged
apart from the code that wrote them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from uuid import UUID, uuid5

from dpserve_verify.audit.judge import Value
from dpserve_verify.privacy.soundness import require

MOST = 99_999
_WORDS = re.compile(
    r"(?P<all>all)|last:(?P<last>[1-9]\d{0,4})|(?P<one>[1-9]\d{0,4})(?:-(?P<end>[1-9]\d{0,4}))?", re.ASCII
)


@dataclass(frozen=True)
class BlockState:
    """A block that was appended. `own`, `held`: its accounts, that of the units that are kept aside where some are."""

    seq: int
    commitment: str
    records: int
    period: dict[str, str] | None
    own: str
    held: str | None


@dataclass
class Grown:
    """The blocks of a dataset behind the first, and how many, from the first on, have no rows any more."""

    blocks: list[BlockState] = field(default_factory=list)
    dropped: int = 0

    @property
    def last(self) -> int:
        """Count its blocks, which is the number of the last one."""
        return 1 + len(self.blocks)


@dataclass
class Blocks:
    """By dataset, what became of it; one that never grew is not among them."""

    known: dict[str, Grown] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def has_grown(self, name: str) -> bool:
        """Return whether a block was appended to a dataset: one whose first block lost its rows has not grown."""
        return bool(self.known.get(name, Grown()).blocks)

    def name_of(self, commitment: str) -> str:
        """Return the dataset whose block has this commitment; "" where none has."""
        rows = ((name, block) for name, grown in self.known.items() for block in grown.blocks)
        return next((name for name, block in rows if block.commitment == commitment), "")

    def check_people(self, value: Value, bounded: bool | None) -> None:
        """Judge what is said of people who may stand in other blocks as well. `bounded`: whether one of them has a
        total over all blocks; None: no column names them.
        """
        if "each_block" in value:
            reason = value["each_block"]
            require(bounded is False, "each_block: stands where people are named and have no total over all blocks")
            note = f"{reason['by']} gave the same people a budget of their own in it; reason: {reason['reason']}"
            self.notes.append(f"dataset {value['dataset']}, block {value['block']}: {note}")
        elif bounded is False and not self.has_grown(value["dataset"]):
            name = value["dataset"]
            self.notes.append(f"dataset {name}: the same people have a budget in each block; no reason is given")

    def judge_appended(self, seq: int, value: Value, family: str, parted: bool, bounded: bool | None) -> BlockState:
        """Judge `dataset-appended`: one more, whose accounts are named by the family's and its number."""
        grown = self.known.get(value["dataset"], Grown())
        require(grown.last < MOST, f"dataset={value['dataset']}: has {MOST} blocks, the most there may be", "bad_input")
        require(value["block"] == grown.last + 1, f"block={value['block']!r:.40}: must be {grown.last + 1}")
        judge_reading(value)
        self.check_people(value, bounded)
        period = value.get("period")
        if period is not None:
            since, until = _days(period)
            for number, block in enumerate(grown.blocks, 2):
                if block.period is None:
                    continue
                first, last = _days(block.period)
                taken = f"since={since}, until={until}: block {number} has the days {first} to {last}"
                details = {"dataset": value["dataset"], "block": number}
                require(until < first or last < since, taken, "name_taken", **details)
        account = str(uuid5(UUID(family), f"block-{value['block']}"))
        holdout = str(uuid5(UUID(account), "holdout")) if parted else None
        state = BlockState(seq, value["commitment"], value["records"], period, account, holdout)
        self.known.setdefault(value["dataset"], grown).blocks.append(state)
        return state

    def judge_dropped(self, name: str, upto: int, datasets: Any) -> None:
        """Judge `blocks-dropped`: the rows of the oldest blocks are deleted; no reservation names them after that."""
        require(name in datasets, f"dataset={name!r:.80}: was never registered")
        grown = self.known.setdefault(name, Grown())
        rows = f"upto={upto}: must be from {grown.dropped + 1} to {grown.last}, whose rows are there"
        require(grown.dropped < upto <= grown.last, rows, "bad_input")
        grown.dropped = upto

    def window(self, value: Value, reads: bool = True) -> tuple[int, int] | None:
        """Return the first and the last block that an entry's words mean, which it must state; None where it names
        none. `reads`: whether it is a job, which needs their rows; a charge may name blocks whose rows are gone.
        """
        if "blocks" not in value:
            require("window" not in value, "window: stands beside the words that it is the meaning of")
            require(value["dataset"] not in self.known, "blocks: must stand where the dataset has grown")
            return None
        grown = self.known.get(value["dataset"], Grown())
        words = _WORDS.fullmatch(value["blocks"])
        if words is None:
            require(False, f"blocks={value['blocks']!r:.40}: must be all, last:12, 3-7 or 4")
            return None
        if words["one"]:
            first, last = int(words["one"]), int(words["end"] or words["one"])
        else:
            first = grown.dropped + 1 if words["all"] else max(grown.dropped, grown.last - int(words["last"])) + 1
            last = grown.last
        below = grown.dropped if reads or not words["one"] else 0
        require(below < first <= last <= grown.last, f"blocks={value['blocks']}: are not there")
        require(
            value.get("window") == [first, last],
            f"window: must be {[first, last]}, which blocks={value['blocks']} means",
        )
        return first, last

    def of(
        self, name: str, window: tuple[int, int], first: tuple[str, ...], records: int, aside: bool
    ) -> tuple[tuple[str, ...], int]:
        """Return the accounts of a window, and its public count: with `first` and `records`, those of the first
        block.
        """
        accounts, count = (list(first), records) if window[0] == 1 else ([], 0)
        for block in self.known.get(name, Grown()).blocks[max(0, window[0] - 2) : window[1] - 1]:
            accounts.append((block.held or "") if aside else block.own)
            count += block.records
        return tuple(accounts), count


def judge_reading(value: Value) -> None:
    """Raise LedgerInvalid unless an entry names no query, or one with a reason and who gave it or neither; and says
    nothing of ids, or each thing once and in order.
    """
    query, ids = value.get("query", {"sha256": ""}), value.get("ids", [])
    require(query.keys() in ({"sha256"}, {"sha256", "reason", "by"}), "query: must be a digest, or with a reason")
    words = (query[name] for name in query if name != "sha256")
    require(all(text.isprintable() for text in words), "query: reason, by: 1 to 200 characters")
    require(ids == sorted(set(ids)), "ids: must be each once and in order")


def _days(period: dict[str, str]) -> tuple[date, date]:
    since, until = date.fromisoformat(period["since"]), date.fromisoformat(period["until"])
    spelled = {"since": since.isoformat(), "until": until.isoformat()}
    require(since <= until and period == period | spelled, "period: must begin before it ends")
    return since, until


def merge_equal_blocks(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the lines of blocks that stand alike: the first one names the others."""
    merged, by_sums = list[dict[str, Any]](), dict[str, dict[str, Any]]()
    for line in lines:
        rest = str({name: value for name, value in line.items() if name != "family"})
        if rest in by_sums:
            by_sums[rest].setdefault("also", []).append(line["family"])
        else:
            by_sums[rest] = dict(line)
            merged.append(by_sums[rest])
    return merged
