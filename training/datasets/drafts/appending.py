"""A draft whose rows are appended to a dataset that is registered: checked by its schema, and entered as a block."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from accountant.access.grants import Access
from accountant.errors import AnswerMissing, Faults
from accountant.home import Home
from accountant.ledger.families.records import NewPeople, Why, identity_statement
from accountant.ledger.families.windows import Period
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import exact_decimal
from training.datasets.growing.append import BlockWords, PersonWords, append

RECORDS = (
    "records: about how many rows does the block have, as everybody may know? Prices and forecasts go by it; it is "
    "public, and stays"
)

Days: TypeAlias = tuple[str | None, str | None, str | None]
WORDS = "reason", "new_rows", "person_epsilon", "each_block", "one_person", "distinct_ids"


def require_records(records: int | None) -> int:
    """Return how many rows a block is said to have, about. AnswerMissing where that was left open: it is never copied
    from the schema, whose number is of another block.
    """
    if records is None:
        raise AnswerMissing(f"{RECORDS}. Say it by --records N (over REST: `records`)", answers=["--records N"])
    return records


def read_words(
    records: int | None,
    by: str,
    *,
    reason: str | None = None,
    new_rows: bool = False,
    person_epsilon: str | None = None,
    each_block: bool = False,
    one_person: bool = False,
    distinct_ids: bool = False,
    days: Days = (None, None, None),
) -> BlockWords:
    """Read what a steward says of rows that come next, at any door; `days`: by which date, the first and the last. One
    error says all that is wrong: AnswerMissing without `records`, else InputError, as for a reason that is needed.
    """
    faults, epsilon, period = Faults(), None, None
    with faults.collect():
        require_records(records)
    with faults.collect():
        if (new_rows or each_block or person_epsilon) and not reason:
            raise InputError(
                "reason: say why, with --new-rows, --each-block or --person-epsilon: --reason TEXT; it stays in the "
                "ledger"
            )
    with faults.collect():
        period = read_period(*days)
    with faults.collect():
        epsilon = exact_decimal("person_epsilon", person_epsilon) if person_epsilon else None
    faults.settle()
    why = Why(by, reason) if reason and (each_block or person_epsilon) else None
    return BlockWords(
        require_records(records),
        period,
        NewPeople(reason, by) if new_rows and reason else None,
        identity_statement(one_person, distinct_ids),
        PersonWords(epsilon, each_block, why),
    )


def read_period(dated: str | None, since: str | None, until: str | None) -> Period | None:
    """Return the days of a block, where they are said. InputError where only some of it is."""
    if dated is None and since is None and until is None:
        return None
    if dated is None or since is None or until is None:
        raise InputError("dated: give --dated, --since and --until together")
    return Period(dated, since, until)


def append_requested(
    home: Home, dataset: str, asked: Mapping[str, Any], rows: Path, by: str, origin: str, access: Access | None
) -> None:
    """Append `rows`, as `by` asked for: what `read_words` takes, and what else a request says."""
    words = read_words(asked.get("records"), by, **{name: asked[name] for name in WORDS if asked.get(name)})
    append(home, dataset, rows, by, origin=origin, access=access, **vars(words))
