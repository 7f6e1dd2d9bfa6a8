"""Every kind of file that people bring is read as meant at every door, by what its draft says, or refused at all."""

from __future__ import annotations

import pytest
from kinds_by_door import KINDS, answers_of, verdict_of


@pytest.mark.parametrize("name", KINDS)
def test_all_doors_make_the_same_of_a_file(tmp_path, name):
    told = answers_of(KINDS[name], tmp_path)
    assert (verdict_of(KINDS[name], told), told) == ("as meant", told)


def test_what_differs_at_one_door_is_seen():
    kind, told = KINDS["commas"], dict.fromkeys(("draft", "check", "predict"), "read")
    assert verdict_of(kind, told) == "as meant"
    for door in ("check", "predict"):
        for other in ("refused", "WRONG"):
            assert verdict_of(kind, {**told, door: other}) == "doors differ"
    assert verdict_of(kind, dict.fromkeys(told, "refused")) == "refused by all, and meant to be read"
    assert verdict_of(KINDS["a total"], told) == "read, and meant to be refused"
    assert verdict_of(KINDS["a third answer"], told) == "read without a question"
