"""A draft whose rows are appended to a dataset that is registered: checked by its schema, and entered as a block."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from accountant.access.grants import Access
from accountant.errors import AnswerMissing
from accountant.home import Home
from accountant.ledger.families.records import NewPeople, Why, identity_statement
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import exact_decimal
from training.datasets.growing.append import PersonWords, append

RECORDS = (
    "records: about how many rows does the block have, as everybody may know? Prices and forecasts go by it; it is "
    "public, and stays"
)


def require_records(records: int | None) -> int:
    """Return how many rows a block is said to have, about. AnswerMissing where that was left open: it is never copied
    from the schema, whose number is of another block.
    """
    if records is None:
        raise AnswerMissing(f"{RECORDS}. Say it by --records N (over REST: `records`)", answers=["--records N"])
    return records


def append_requested(
    home: Home, dataset: str, asked: Mapping[str, Any], rows: Path, by: str, origin: str, access: Access | None
) -> None:
    """Append `rows`, as `by` asked for: `records`, `person_epsilon`, `reason`, and what is said of people and rows."""
    reason = str(asked.get("reason") or "")
    why = Why(by, reason) if reason else None
    epsilon: Decimal | None = None
    if asked.get("person_epsilon"):
        epsilon = exact_decimal("person_epsilon", str(asked["person_epsilon"]))
    if asked.get("new_rows") and not reason:
        raise InputError("reason: say why these rows are registered nowhere else; it stays in the ledger")
    append(
        home, dataset, rows, by, require_records(asked.get("records")),
        new_rows=NewPeople(reason, by) if asked.get("new_rows") else None, origin=origin, access=access,
        said_ids=identity_statement(bool(asked.get("one_person")), bool(asked.get("distinct_ids"))),
        person=PersonWords(epsilon, bool(asked.get("each_block")), why),
    )  # fmt: skip
