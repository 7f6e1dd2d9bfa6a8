"""Pages of papers are of one age: every line has the digest of today's learner and defaults, or the page says which do
not. And a digest changes with what a learner releases or makes of it, and with nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.lines import read_lines
from studies import digests
from studies.bdpe import table_4
from studies.dpebm import ebm_paper
from studies.lazybb import paper_fits
from studies.owners import local_paper
from training.learners import LEARNERS
from training.learners.boosting import lazybb, smooth_boosting

STUDIES = Path(digests.__file__).parent
Line = Mapping[str, Any]


class Page(NamedTuple):
    lines: str
    today: Callable[[Line], str | None]
    name: Callable[[Line], str]


PAGES = {
    "lazybb/paper.md": Page("lazybb/paper.jsonl.gz", paper_fits.today, lambda line: line["key"]),
    "dpebm/dpebm.md": Page("dpebm/dpebm.jsonl", ebm_paper.today, lambda line: f"{line['dataset']} {line['epsilon']}"),
    "bdpe/bdpe.md": Page("bdpe/bdpe.jsonl.gz", table_4.digest_of, lambda line: f"{table_4.cell_of(line)}"),
    "owners/local-paper.md": Page(
        "owners/local-paper.jsonl.gz", local_paper.today, lambda line: f"{line['set']} {line['part']}"
    ),
}


def unexpected(page: str) -> tuple[list[str], list[str]]:
    """Names of stale lines that the page does not speak of; and what it speaks of, though no line is stale."""
    lines, today, name_of = PAGES[page]
    names = [name_of(line) for line in digests.stale(read_lines(STUDIES / lines), today)]
    older = digests.OLDER.get(page, {})
    silent = [name for name in names if not any(part in name for part in older)]
    return silent, [part for part in older if not any(part in name for name in names)]


@pytest.mark.parametrize("page", PAGES)
def test_figures_are_of_todays_learners_or_the_page_says_of_which(page):
    assert unexpected(page) == ([], [])
    text = " ".join((STUDIES / page).read_text("utf-8").split())
    assert [words for words in digests.OLDER.get(page, {}).values() if words not in text] == []


def test_a_changed_default_makes_a_page_stale_and_names_its_lines(monkeypatch):
    """The default rule of `lazybb` asks for one round more: that column is stale, and no other of 1-rules."""
    rule = smooth_boosting.defaults
    monkeypatch.setattr(smooth_boosting, "defaults", lambda *of: replace(rule(*of), rounds=rule(*of).rounds + 1))
    paper_fits.digest_of.cache_clear()
    try:
        lines = [
            line for line in read_lines(STUDIES / "lazybb/paper.jsonl.gz") if line["key"].startswith("curves|mush")
        ]
        fresh = [line for line in lines if "|defaults|" not in line["key"]]
        assert len(fresh) > 50
        assert digests.stale(fresh, paper_fits.today) == []
        assert len(digests.stale(lines, paper_fits.today)) == 13
    finally:
        paper_fits.digest_of.cache_clear()


def test_a_digest_is_of_what_is_released_and_not_of_words_or_noise(monkeypatch):
    def one(**parameters: Any) -> str:
        return digests.digest(LEARNERS["lazybb"](rounds=6, **parameters))

    first = one()
    assert one() == first
    assert one(decay=0.5) != first
    assert one(epsilon=2) != first
    with monkeypatch.context() as changed:
        changed.setattr(lazybb.WeightedAgreement, "purpose", "other words")
        assert one() == first
    with monkeypatch.context() as changed:
        changed.setattr(lazybb, "link_of", lambda settings: 1.01 * lazybb_link(settings))
        assert one() != first


lazybb_link = lazybb.link_of
