"""A draft whose rows are appended to a dataset that is registered: checked by its schema, and entered as a block."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accountant.access.grants import Access
from accountant.errors import AnswerMissing
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
    period: Period | None = None,
) -> BlockWords:
    """Read what a steward says of rows that come next, at any door. AnswerMissing without `records`; InputError where a
    reason is needed and not given.
    """
    if (new_rows or each_block or person_epsilon) and not reason:
        raise InputError(
            "reason: say why, with --new-rows, --each-block or --person-epsilon: --reason TEXT; it stays in the ledger"
        )
    why = Why(by, reason) if reason and (each_block or person_epsilon) else None
    epsilon = exact_decimal("person_epsilon", person_epsilon) if person_epsilon else None
    return BlockWords(
        require_records(records),
        period,
        NewPeople(reason, by) if new_rows and reason else None,
        identity_statement(one_person, distinct_ids),
        PersonWords(epsilon, each_block, why),
    )


def append_requested(
    home: Home, dataset: str, asked: Mapping[str, Any], rows: Path, by: str, origin: str, access: Access | None
) -> None:
    """Append `rows`, as `by` asked for: what `read_words` takes, and what else a request says."""
    words = read_words(asked.get("records"), by, **{name: asked[name] for name in WORDS if asked.get(name)})
    append(home, dataset, rows, by, origin=origin, access=access, **vars(words))
