"""The commands of docs/reference/claims.md do what its table says, on a home with a trained model."""

from __future__ import annotations

import json
import os
import re
import shlex

import ledgers
import pytest
import warm
from pages import ROOT, blocks, follow, part

from benchmarks.lines import read_lines
from serving.pages.parts.render import slug
from studies.beside import run

PAGE, HEADING = "docs/reference/claims.md", "What dpserve does that none of these does"


@pytest.mark.slow
def test_each_claim_beside_others_is_a_command_that_does_it(tmp_path):
    home = ledgers.copy(ledgers.trained(), tmp_path / "home")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
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
        "attack",
        "written to adult.dsse.json",
        "every line of it was derived again from the ledger's entries",
    ):
        assert words in shown, words
    assert shown.count("result   sound") == 2
    assert (tmp_path / "adult.sql").read_text().count("SELECT") >= 1
    kinds = [json.loads(body)["type"] for body in ledgers.bodies(home)[before:]]
    job = ["reserved", "started", "committed"]
    attack, cover = [*job, "issued", "attack-started", "attacked"], ["dataset-registered", *job, "evaluated"]
    assert kinds == [*job, "evaluated", *attack, *cover]  # nothing was charged beside them
    assert (tmp_path / "answers.csv").read_text("utf-8").startswith('"label","p_<=50K","p_>50K","in_<=50K","in_>50K"')


# What needs more than a trained model, by its command: the test that runs it.
ELSEWHERE = {
    "dpserve mcp": ("tests/serving/cli/test_agents.py", '"mcp"'),
    "dpserve login --sso": ("tests/serving/process/test_sso.py", 'blocks("docs/access.md"'),
    "dpserve serve --grpc": ("tests/serving/test_v2_grpc.py", '"--grpc"'),
    "release.py verify": ("tests/deploy/test_release.py", 'run("verify"'),
}


def has_words(words: str, line: str) -> bool:
    return all(word in line for word in words.replace("..", " ").split())


def test_each_command_of_the_table_is_run():
    """In the page's own block; or, where the command is a link, on the page that it leads to, and by a test."""
    rows = re.findall(r"^\| (?:`([^`]*)`|\[`([^`]*)`\]\(([^)#]*)#([^)]*)\)) \|", part(PAGE, HEADING), re.M)
    (commands,) = blocks(PAGE, "sh")
    for here, away, page, anchor in rows:
        if here:
            assert any(has_words(here, line) for line in commands.splitlines()), here
            continue
        path = os.path.normpath(f"docs/reference/{page}")
        text = (ROOT / path).read_text("utf-8")
        (heading,) = [name for name in re.findall(r"^#+ (.*)", text, re.M) if slug(name) == anchor]
        assert any(has_words(away, line) for line in part(path, heading).splitlines()), away
        test, words = ELSEWHERE[away]
        assert words in (ROOT / test).read_text("utf-8"), (away, test)
    assert len(rows) >= 14
    assert {away for _, away, _, _ in rows if away} == set(ELSEWHERE)


def test_a_cell_that_has_something_was_seen_in_a_run():
    """Each peer has lines of a run of the version that the page names, and a line for each row that it has words in."""
    lines = read_lines(ROOT / "studies" / "beside" / "beside.jsonl")
    table = [line for line in part(PAGE, HEADING).splitlines() if line.startswith("| ")]
    names = [cell.strip() for cell in table[0].split("|")[3:-1]]
    assert names == list(run.PEERS.values())
    for at, (peer, title) in enumerate(run.PEERS.items()):
        own = [line for line in lines if line["peer"] == peer]
        version = re.search(rf"{title} ([\d.]+\d)", part(PAGE, HEADING))
        assert version[1] in next(line["answer"] for line in own if line["line"] == "version")
        for line, row in zip(run.ROWS, table[1:-1], strict=True):  # the last: a release, which is not of the package
            cell = row.split("|")[3 + at].strip()
            answers = [each["answer"] for each in own if each["line"] == line]
            assert answers, (title, line)
            assert (cell == "-") <= all(answer == "0 files" for answer in answers), (title, line, answers)
