"""What pages show of a dataset that grows: its blocks, and what the windows of them allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accountant.access.grants import Access
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import in_window, left
from accountant.ledger.families.windows import ALL, window_of, window_words
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string

USUAL = (1, 4, 12, 26, 52)  # of the newest blocks, which a form offers
ON_A_PAGE = 12
MAX_BARS = 1000


def windows(home: Home, name: str, rights: Access, typed: str = "") -> list[dict[str, Any]]:
    """Return the windows of blocks that a job may read of a dataset that has grown: the name, the blocks, what
    fits, and the block with the least left. The one that was `typed` comes first, where it is valid. [] of a dataset
    that has not grown, or that the caller may not train on.
    """
    if not name or not rights.may("train", dataset=name):
        return []
    try:
        dataset = home.ledger.dataset(name, rights.principal)
    except UnknownName:
        return []
    if dataset.last is None or dataset.last == dataset.dropped:
        return []
    there = dataset.last - dataset.dropped
    words = dict.fromkeys([typed, ALL, *(f"last:{size}" for size in USUAL if size < there)])
    return [line for line in (_window(dataset, window) for window in words if window) if line]


def _window(dataset: Dataset, words: str) -> dict[str, Any] | None:
    """Return a window's line; None where the words mean no blocks of the dataset."""
    try:
        first, last = window_of(words, dataset.dropped, dataset.last or 1, dataset.registration.name)
    except InputError:
        return None
    return {
        "named": words,
        "blocks": window_words((first, last)),
        **left(in_window(dataset, (first, last)), dataset.delta).to_json(),
    }


def blocks_of(home: Home, dataset: Dataset, before: int) -> dict[str, Any] | None:
    """Return a page of a dataset's blocks, the newest first, those below number `before`; a picture of all, and those
    with the least left. None where the dataset has not grown.
    """
    if dataset.last is None:
        return None
    all_blocks = (
        home.ledger.dataset(dataset.registration.name, blocks=(1, dataset.last)) if dataset.dropped else dataset
    )
    pairs = [*zip(all_blocks.blocks, all_blocks.own, strict=True)]
    lines: list[dict[str, Any]] = [
        {
            "number": block.number, "entry": block.seq, "records": block.records, "period": block.period,
            "spent": decimal_string(family.epsilon_of(family.used)), "left": max(0.0, 1 - family.share),
            "closed_by": None if family.whole is None else family.whole.job, "dropped": block.number <= dataset.dropped,
        }
        for block, family in pairs
    ]  # fmt: skip
    upto = min(before - 1, dataset.last)
    shown = lines[max(0, upto - ON_A_PAGE) : upto][::-1]
    for line in shown:
        line["time"] = home.ledger.log.entry(line["entry"]).value["time"]
    there = sorted((line for line in lines if not line["dropped"]), key=lambda line: (line["left"], line["number"]))
    return {
        "last": dataset.last, "dropped": dataset.dropped, "shown": shown, "least": there[:3],
        "untouched": sum(line["left"] == 1 for line in there), "bars": _bars(lines),
        "newer": upto + ON_A_PAGE + 1 if upto < dataset.last else None,
        "older": shown[-1]["number"] if shown and shown[-1]["number"] > 1 else None,
    }  # fmt: skip


def _bars(lines: Sequence[dict[str, Any]]) -> str:
    """Return an SVG path, 1000 wide and 100 high: for each block a bar as high as its share left. Where there are more
    than MAX_BARS, neighbours share a bar, that of the one with the least.
    """
    group = -(-len(lines) // MAX_BARS)
    heights = [min(line["left"] for line in lines[at : at + group]) for at in range(0, len(lines), group)]
    width = 1000 / len(heights)
    gap = min(4.0, width * 0.2)
    return "".join(
        f"M{at * width:.2f},100V{100 - 100 * max(left, 0.01):.1f}h{width - gap:.2f}V100z"
        for at, left in enumerate(heights)
    )
