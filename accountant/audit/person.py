"""The statement to people whose rows may be in a dataset (`dpserve_verify.audit.person`), made by a home from
the entries about the dataset and those that share its budget, as of one signed checkpoint. No row is read, and no entry
is written.
"""

from __future__ import annotations

import re
from calendar import monthrange
from typing import TYPE_CHECKING

from accountant.ledger.entry_search import Walk, Wanted, question_of_jobs
from accountant.ledger.families.dataset_sets import members_of, question_of_members
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.windows import Window, named_window
from accountant.log.entries import NEWEST_CHECKPOINT
from dpserve_verify.audit.moved import moved
from dpserve_verify.audit.person import Person, encode, verify_person
from dpserve_verify.errors import InputError
from dpserve_verify.keys import dsse
from dpserve_verify.log.notes import parse_checkpoint

if TYPE_CHECKING:
    from accountant.home import Home

_DAYS = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d))?", re.ASCII)


def state_person(home: Home, name: str, blocks: str | None = None) -> tuple[bytes, Person]:
    """Return the signed statement of a dataset, or of these blocks of it, and what it says.

    `blocks`: in words, as a job names them, or the month (2026-03) or day (2026-03-14) whose rows are meant. InputError
    where there are none such, UnknownName where there is no such dataset, KeyInvalid where no issuer's key is here.
    """
    log = home.ledger.log
    with log.sharing([question_of_members(), question_of_jobs(name), NEWEST_CHECKPOINT]):
        dataset = home.ledger.dataset(name)
        window = None if blocks is None else _window(blocks, home, dataset)
        head = parse_checkpoint(log.checkpoint())
        with log.database.reading() as connection:
            names = members_of(connection, dataset.identities)
        log.database.ask([question_of_jobs(each) for each in names])
        walks = (Walk(log.database, Wanted(dataset=each), -1, None, head.size) for each in names)
        entries = {entry.seq: entry.value for walk in walks for entry in walk if entry.seq < head.size}
        trust = home.trust
    facts = moved(sorted(entries.items()), name, window)
    envelope = dsse.sign(encode(facts, log.origin, head.size, head.root), home.keys.signer("issuer"))
    return envelope, verify_person(envelope, trust)


def _window(words: str, home: Home, dataset: Dataset) -> Window:
    """Return the blocks that are meant. Of a month or a day: from the first to the last that has one of its days."""
    name, last = dataset.registration.name, dataset.last or 1
    if (match := _DAYS.fullmatch(words)) is None:
        return named_window(words, 0, last, name)
    year, month, day = int(match[1]), int(match[2]), match[3]
    if not (1 <= month <= 12 and year and 1 <= int(day or 1) <= monthrange(year, month)[1]):
        raise InputError(f"blocks={words}: is no month or day; write 2026-03 or 2026-03-14")
    begin, end = (f"{words}-01", f"{words}-31") if day is None else (words, words)
    every = home.ledger.dataset(name, blocks=(1, last), rows=False).blocks
    there = [each.number for each in every if each.period and each.period.since <= end and begin <= each.period.until]
    if not there:
        raise InputError(f"blocks={words}: no block of {name} has such days; name it by its number, 1 to {last}")
    return there[0], there[-1]
