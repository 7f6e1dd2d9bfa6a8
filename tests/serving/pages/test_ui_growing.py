"""Pages of datasets that grow: their blocks, the window of a new job, schedules."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from ledgers import copy, hexes, place, plan, prepared, registration, request, reserve
from pages_in_process import pages_at, words

from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.families.records import Unit, Why
from accountant.ledger.families.windows import Period
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import PureDp

BLOCKS = 40


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """Adult with forty blocks, of which three were read, and the first two are deleted; its blocks have no rows."""
    found = Home.open(place(copy(prepared(), tmp_path_factory.mktemp("growing") / "home")))
    for number in range(2, BLOCKS + 1):
        day = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}"
        period = Period("day", day, day) if number % 2 else None
        block_appending.append(
            found.ledger.log, NewBlock("adult", hexes(f"{number}"), 1000 + number, "s", period), number
        )
    asked = replace(request("adult", "1", "0.0000001"), blocks="7-9")
    reserve(found.ledger, asked, plan(PureDp(Decimal("0.5")), 2))
    block_appending.drop(found.ledger.log, "adult", 2, Why("s", "kept for a year"))
    about = registration("clinic", Budget.of("2"), unit=Unit("person", "name"), person=Budget.of("3"))
    found.ledger.register(replace(about, schema=found.ledger.dataset("adult").registration.schema))
    reserve(found.ledger, request("clinic", "1", "0"), plan(PureDp(Decimal("0.5")), 2))
    return found


@pytest.fixture(scope="module")
def pages(home):
    with pages_at(home.path) as found:
        yield found


def test_a_dataset_shows_its_blocks_a_page_at_a_time(pages):
    """As declared, with what is spent and left; the least left is named, and the deleted are said to be."""
    newest = words(pages.page("/ui/datasets/adult"))
    assert "40 blocks, each with the whole total; the rows of the first 2 are deleted" in newest
    assert "Nothing was spent on 35." in newest
    assert re.search(r"Most is used of block 7 \((\d+) %\), block 8 \(\1 %\), block 9 \(\1 %\)\.", newest)
    assert "Block 40" in newest
    assert "Block 29" in newest
    assert "Block 28" not in newest
    assert "1,040" in newest
    assert "2026-02-12 to 2026-02-12" in newest
    oldest = words(pages.page("/ui/datasets/adult?before=13"))
    assert "Block 12" in oldest
    assert "Block 1 " in oldest
    assert "Block 13" not in oldest
    assert oldest.count("rows deleted") == 2
    assert pages.page("/ui/datasets/adult?before=1").status_code == 400
    assert "?before=29" in pages.page("/ui/datasets/adult").text
    assert "?before=41" in pages.page("/ui/datasets/adult?before=29").text


def test_a_dataset_tells_of_the_total_for_one_person(pages, home):
    shown = words(pages.page("/ui/datasets/clinic"))
    assert re.search(
        r"ε 3 at δ 0, over all blocks that will ever come\.\s+[\d.]+ % of the budget used\. Room for one more",
        shown,
    )
    assert "One person, over all blocks" not in words(pages.page("/ui/datasets/adult"))
    entry = home.ledger.dataset("clinic").seq + 1
    assert "has a total as well: epsilon 3 at delta 0" in words(pages.page(f"/ui/ledger/{entry}"))


def test_a_new_job_is_offered_windows_with_what_fits(pages, home):
    """The form says for each window which blocks it means, what fits, and where least is left; the price of one says
    which blocks; a dataset that has not grown is asked for nothing."""
    path = "/ui/jobs/new?dataset=adult&learner=lazybb&epsilon=0.5"
    shown = words(pages.page(path))
    assert "all 3 to 40 Room for one more job: up to ε" in shown
    assert re.search(r"up to ε [0-9.]+ \(bound by block 7\) block 7: \d\d %", shown)
    assert "last:12 29 to 40" in shown
    assert "block 29: 0 %" in shown
    priced = words(pages.page(f"{path}&blocks=6-8"))
    assert "6-8 6 to 8" in priced
    assert "Blocks 6 to 8 it is charged to each" in priced
    refused = words(pages.page("/ui/jobs/new?dataset=adult&learner=lazybb&epsilon=2.9&blocks=7"))
    assert "Block 7 does not admit it." in refused
    assert "which of the 40 of dataset adult?" in shown  # it cannot be priced without
    assert 'name="blocks"' not in pages.page("/ui/jobs/blocks?dataset=none").text
    assert "last:26 15 to 40" in words(pages.page("/ui/jobs/blocks?dataset=adult", "train"))


def test_a_schedule_is_previewed_added_and_removed(pages):
    """What it could be kept for stands there before it is added; who may not train has no form."""
    typed = {"name": "weekly", "dataset": "adult", "epsilon": "0.3", "blocks": "last:2", "learner": "lazybb"}
    shown = pages.page("/ui/schedules?" + "&".join(f"{name}={value}" for name, value in typed.items()))
    said = words(shown)
    assert re.search(
        r"Can be kept for \d+ runs on these blocks, until \d{4}-\d\d-\d\d; for good with a new block", said
    ), said
    assert "No schedule yet" in said
    assert pages.send("/ui/schedules", **typed, start="2099-01-01T00:00").status_code == 303
    said = words(pages.page("/ui/schedules"))
    assert "weekly every week: lazybb on adult , blocks last:2, ε 0.3" in said
    assert "Add one" not in words(pages.page("/ui/schedules", "audit"))
    assert "that was not done" in words(pages.send("/ui/schedules", **typed)).lower()  # the name is in use
    wrong = pages.page("/ui/schedules?name=x&dataset=adult&epsilon=0.3&blocks=999")
    assert "must be all, last:12" in words(wrong) or "has blocks 1 to 40" in words(wrong)
    assert pages.send("/ui/schedules/weekly/remove", "train").status_code in (403, 404)
    assert pages.send("/ui/schedules/weekly/remove").status_code == 303
    assert "No schedule yet" in words(pages.page("/ui/schedules"))
