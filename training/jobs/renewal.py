"""Renewing a model with rows that have come: they are appended as the next block, and a model is trained, evaluated and
placed by one job that reads them too. The price is known, and admitted, before a row is entered.

Each step is the operation that it is by itself. A renewal that was killed is repeated by asking again: rows that are a
block already are not appended once more, and the job of that block has one key, so that it is charged once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from accountant.access.grants import Access
from accountant.home import Home
from accountant.ledger.block_appending import NewBlock, rehearse_append
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import HOLDOUT
from accountant.ledger.families.windows import window_of, window_words
from training.datasets.growing.append import append_from
from training.datasets.opened import RowSource
from training.jobs import job
from training.measuring.worth.evaluate import plan_following
from training.planning.plans import plan
from training.requests import JobRequest


@dataclass(frozen=True)
class NewRows:
    """Rows that come next. `records`: about how many, as everybody may know; `said_ids`: as `append` takes it."""

    source: RowSource
    records: int
    said_ids: tuple[str, ...] = ()


def plan_renewal(home: Home, asked: JobRequest, records: int, by: str, promotes: bool = True) -> dict[str, Any]:
    """Return what `plan` says of a job on the dataset as it would be with another block of about so many `records`, the
    `evaluation` that follows with it. Nothing is spent or appended. Raises as `append` and `plan`.
    """

    def grown(part: str | None) -> Dataset:
        return rehearse_append(home.ledger.log, NewBlock(asked.dataset, "", records, by), by, part, asked.blocks)

    planned = plan(home, asked, by, promotes, grown(None))
    body = planned.to_json()
    if asked.evaluate is not None:
        aside = grown(HOLDOUT) if planned.dataset.holdout is not None else None
        body |= {"evaluation": plan_following(home, planned.request, asked.evaluate, by, aside).to_json()}
    return body


def append_next(
    home: Home, rows: NewRows, asked: JobRequest, by: str, promotes: bool, access: Access | None = None
) -> int:
    """Append rows as the next block, where the job would be admitted on it; return its number, or that of the block
    that they are already. Raises as `plan_renewal` and `append`.
    """
    grown = append_from(
        home, asked.dataset, rows.source, by, rows.records, access=access, said_ids=rows.said_ids,
        admit=lambda: plan_renewal(home, asked, rows.records, by, promotes),
    )  # fmt: skip
    return grown.window[0] if grown.window else grown.last or 1


def job_of_block(home: Home, asked: JobRequest, number: int) -> JobRequest:
    """Return the job of a renewal whose rows are this block: on the blocks that its words named when this was the
    newest, under a key of the block and the model's name. InputError where the words name no block.
    """
    dataset = home.ledger.dataset(asked.dataset)
    blocks = asked.blocks
    if blocks is not None:
        blocks = window_words(window_of(blocks, min(dataset.dropped, number - 1), number, asked.dataset))
    key = asked.idempotency_key or f"renewal of {asked.model or asked.dataset} with block {number}"
    return replace(asked, blocks=blocks, idempotency_key=key)


def renew(
    home: Home,
    rows: NewRows,
    asked: JobRequest,
    *,
    by: str,
    promotes: bool,
    access: Access | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Append, train, evaluate and place; return what `train` does, and the `block`. Asked again it goes on where it
    stopped. Raises as `plan_renewal`, `append` and `train`.
    """
    number = append_next(home, rows, asked, by, promotes, access)
    wanted = job_of_block(home, asked, number)
    body = job.train(home, wanted, by=by, key=wanted.idempotency_key, progress=progress, promotes=promotes, queued=True)
    return {**body, "block": number}
