"""The page for people who ask what a dataset could give away about them, and the signed file that it hands out."""

from __future__ import annotations

import ledgers
import pytest
from pages_in_process import pages_at, words

from accountant.audit.person import state_person
from dpserve_verify.audit.person import verify_person

PLACE = "/ui/datasets/adult/person"


@pytest.fixture
def pages(tmp_path):
    with pages_at(ledgers.copy(ledgers.filled(), tmp_path / "home")) as found:
        yield found


def test_page_says_what_the_statement_says_and_the_file_verifies(pages):
    size = pages.home.ledger.log.size()
    _, found = state_person(pages.home, "adult")
    for scope in ("admin", "audit"):
        said = words(pages.page(PLACE, scope))
        assert all(text in said for section in found.predicate["words"] for text in section)
    signed = pages.page(f"{PLACE}/signed", "audit")
    assert verify_person(signed.content, pages.home.trust) == found
    assert signed.headers["content-disposition"] == 'attachment; filename="adult.dsse.json"'
    assert "/ui/datasets/adult/person" in pages.page("/ui/datasets/adult", "audit").text
    assert "/ui/datasets/adult/person" not in pages.page("/ui/datasets/adult", "train").text
    assert pages.home.ledger.log.size() == size  # that somebody asked is not noted


def test_others_do_not_get_it_and_wrong_blocks_are_said(pages):
    for path in (PLACE, f"{PLACE}/signed"):
        assert pages.page(path, "predict").status_code == 403
        assert pages.page(path, "train").status_code == 403
        assert pages.page(f"{path}?person=17", "audit").status_code == 400
    assert "has blocks 1 to 1" in words(pages.page(f"{PLACE}?blocks=7", "audit"))
    assert pages.page(f"{PLACE}/signed?blocks=7", "audit").status_code == 400
