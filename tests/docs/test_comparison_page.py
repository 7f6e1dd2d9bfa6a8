"""The commands of docs/comparison.md do what its table says, on a home with a trained model."""

from __future__ import annotations

import json
import re
import shlex

import ledgers
import pytest
import warm
from pages import blocks, follow, part

PAGE = "docs/comparison.md"


@pytest.mark.slow
def test_each_claim_beside_others_is_a_command_that_does_it(tmp_path):
    home = ledgers.copy(ledgers.trained(), tmp_path / "home")
    python = shlex.join(warm.python())
    programs = (
        f'dpserve() {{ {python} -m serving.cli "$@"; }}\ndpserve-verify() {{ {python} -m dpserve_verify "$@"; }}\n'
    )
    (commands,) = blocks(PAGE, "sh")
    before = len(ledgers.bodies(home))
    shown = follow(tmp_path, programs + commands)
    for words in (
        "budget",
        "result   sound",
        "verified: adult: ",
        "written to adult.dsse.json",
        "every line of it was derived again from the ledger's entries",
    ):
        assert words in shown, words
    assert shown.count("result   sound") == 2
    kinds = [json.loads(body)["type"] for body in ledgers.bodies(home)[before:]]
    assert kinds == [
        "reserved",
        "started",
        "committed",
        "evaluated",
    ]  # of the evaluation: nothing was charged beside it


def test_each_command_of_the_table_is_run():
    table = re.findall(r"^\| `([^`]*)` \|", part(PAGE, "What dpserve does that none of these does"), re.M)
    (commands,) = blocks(PAGE, "sh")
    lines = commands.splitlines()
    for words in table:
        assert any(all(word in line for word in words.replace("..", " ").split()) for line in lines), words
    assert len(table) >= 8
