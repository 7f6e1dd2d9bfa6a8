"""A new owner.toml, and what its owner's file holds for it: said to the owner alone, and of no campaign.

This is where an owner finds out that rows do not fit: an answer to a campaign never says so, to anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpserve_verify.errors import InputError
from local.campaign.settings_files import spell, write_settings
from local.owner.own_rows import labels, numbers, open_table
from local.owner.settings import Pinned, read_settings

RULES = """\
# What is not said here is not agreed to. `dpserve owner check` says whether your rows fit; an answer never does.
url = {url}
trust = {trust}
rows = {rows}
ledger = {ledger}

[question]
target = {target}
{answers}
features = {features}

[policy]
total_epsilon = {total}
largest_epsilon = {largest}
least_owners = {least}
"""


@dataclass(frozen=True)
class NewOwner:
    """What a new owner decides. Paths are as they are written into the file: beside it."""

    url: str
    rows: str
    question: Pinned
    total_epsilon: str
    largest_epsilon: str
    least_owners: int = 1
    trust: str = "trust.json"
    ledger: str = "owner.db"


def found_owner(path: Path, new: NewOwner) -> dict[str, Any]:
    """Write the settings, and say what the rows hold for them. InputError where the file is there, something in it is
    not understood, or the rows cannot be opened: then there is no file.
    """
    pinned = new.question
    if pinned.range is None:
        answers = f"classes = {spell(list(pinned.classes))}"
    else:
        answers = f"range = {spell(list(pinned.range))}"
    text = RULES.format(
        url=spell(new.url), trust=spell(new.trust), rows=spell(new.rows), ledger=spell(new.ledger),
        target=spell(pinned.target), answers=answers, features=spell(list(pinned.features)),
        total=spell(new.total_epsilon), largest=spell(new.largest_epsilon), least=new.least_owners,
    )  # fmt: skip
    return write_settings(path, text, check_rows)


def check_rows(path: Path) -> dict[str, Any]:
    """Report what the rows hold for the pinned question: how many there are, how many have an answer that fits, which
    columns are missing, and why the file cannot be read, if it cannot. InputError where nothing is pinned, or the file
    cannot be opened.
    """
    settings = read_settings(path)
    pinned = settings.policy.question
    if pinned is None:
        raise InputError(f"{path}: has no [question]; add target, classes (or range) and features")
    table = open_table(settings.rows)
    texts = table.columns.get(pinned.target, [])
    fits = (labels(texts, pinned.classes) if pinned.range is None else numbers(texts, pinned.range))[1]
    return {
        "rows": table.rows,
        "answers_that_fit": int(np.count_nonzero(fits)),
        "missing_columns": [name for name in (pinned.target, *pinned.features) if name not in table.columns],
        "problem": table.problem,
    }
