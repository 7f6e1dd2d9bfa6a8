"""Renewing a model with rows that have come: they are appended as the next block, and a model is trained, evaluated and
placed by one job that reads them too. The price is known, and admitted, before a row is entered.

Each step is the operation that it is by itself. A renewal that was killed is repeated by asking again: rows that are a
block already are not appended once more, and the job of that block has one key, so that it is charged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accountant.access.grants import Access
from accountant.errors import Faults, IdempotencyConflict
from accountant.home import Home
from accountant.ledger.block_appending import rehearse_append
from accountant.ledger.families.block_rows import require_window
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import HOLDOUT, NotCommitted, Why, charged_window
from accountant.ledger.families.windows import window_of, window_words
from accountant.ledger.schedules import Schedule
from dpserve_verify.errors import InputError
from training.datasets.datasets import notes_of
from training.datasets.growing.append import BlockWords, PersonWords, append_from
from training.datasets.opened import RowSource
from training.jobs import job
from training.kinds.training_steps import earlier_job
from training.measuring.worth.evaluate import plan_following
from training.planning.job_views import job_to_json
from training.planning.plans import plan, target_of
from training.requests import JobRequest

LOG = logging.getLogger("dpserve.training")
SETTLED = 60.0  # seconds for which a file did not change: who copies one is done
_TRIED = dict[Path, tuple[int, int]]()  # files that this process tried to append, as they stood then


@dataclass(frozen=True)
class ScheduledRows:
    """Files of which each is appended when it has come. `data`: their pattern, an absolute path; `records`: about how
    many rows each has, as everybody may know; `each_block`: why the same people get a budget of their own in each
    block; None: they do not. InputError where the pattern is none.
    """

    data: str
    records: int
    each_block: str | None = None

    def __post_init__(self) -> None:
        if not Path(self.data).is_absolute() or not Path(self.data).name.strip("*?"):
            raise InputError(
                f"data={self.data[:80]!r}: must be an absolute path whose name says which files they are, like "
                "/data/visits-*.parquet"
            )

    def to_json(self) -> dict[str, Any]:
        """Return it as its entry states it."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def words(self, by: str) -> BlockWords:
        """Return what `by` says of the rows of each file. InputError where it is no reason that an entry holds."""
        why = None if self.each_block is None else Why(by, self.each_block)
        return BlockWords(self.records, person=PersonWords(each_block=why is not None, why=why))

    def waiting(self, home: Home, dataset: str, now: float) -> list[Path]:
        """Return the files that were not appended, as far as is noted, nor tried as they stand, by name."""
        known = {note["data"] for note in notes_of(home, dataset)}
        place = Path(self.data)
        found = [path for path in sorted(place.parent.glob(place.name)) if str(path) not in known]
        return [path for path in found if now - path.stat().st_mtime >= SETTLED and _TRIED.get(path) != _state(path)]


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def check_words(home: Home, given: Mapping[str, Any]) -> None:
    """Raise one InputError with all that is left open in the words of a job on a dataset that gets another block."""
    dataset, faults = home.ledger.dataset(given["dataset"]), Faults()
    with faults.collect():
        require_window(replace(dataset, last=(dataset.last or 1) + 1), given.get("blocks"))
    with faults.collect():
        target_of(home, dataset, given.get("target"))
    faults.settle()


def plan_renewal(
    home: Home, asked: JobRequest, words: BlockWords | None, by: str, promotes: bool = True
) -> dict[str, Any]:
    """Return what `plan` says of a job on the dataset as it would be with another block of which these words are said
    (None: as it stands), the `evaluation` that follows with it. Nothing is spent or appended. Raises as `append` and
    `plan`.
    """

    def grown(part: str | None) -> Dataset | None:
        if words is None:
            return None
        return rehearse_append(home.ledger.log, words.to_block(asked.dataset, by), by, part, asked.blocks)

    planned = plan(home, asked, by, promotes, grown(None))
    body = planned.to_json()
    if asked.evaluate is not None:
        aside = grown(HOLDOUT) if planned.dataset.holdout is not None else None
        body |= {"evaluation": plan_following(home, planned.request, asked.evaluate, by, aside).to_json()}
    return body


def append_next(
    home: Home,
    source: RowSource,
    words: BlockWords,
    asked: JobRequest,
    by: str,
    promotes: bool,
    access: Access | None = None,
    then: Callable[[dict[str, Any]], object] = lambda planned: None,
) -> int:
    """Append rows as the next block, where the job would be admitted on it; return its number, or that of the block
    that they are already. `then` is given the plan before they are entered. Raises as `plan_renewal` and `append`.
    """
    grown = append_from(
        home, asked.dataset, source, by, words, access, lambda: then(plan_renewal(home, asked, words, by, promotes))
    )
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


@contextmanager
def _naming_block(asked: JobRequest, number: int) -> Iterator[None]:
    """Say of a key that came with another request which block the rows are, and what can be done."""
    try:
        yield
    except IdempotencyConflict as error:
        raise IdempotencyConflict(
            f"data: these rows are block {number} of {asked.dataset} already, and nothing is appended; "
            f"{error.message}. Repeat that request (dpserve job show {error.details['job']}), or train on the block "
            "once more, for another price, under a key of your own: --idempotency-key KEY",
            block=number,
            **error.details,
        ) from None


def rehearse(
    home: Home,
    source: RowSource,
    words: BlockWords,
    asked: JobRequest,
    *,
    by: str,
    promotes: bool,
    access: Access | None,
) -> dict[str, Any]:
    """Return what `renew` would do: what `plan_renewal` says; of rows that are a block already the `block`, and its
    job, where that was made before. The rows are read, and nothing is appended or spent. Raises as `renew`, but where
    rows stand elsewhere, which is found, and counted as an answer, when they are appended.
    """
    planned = list[dict[str, Any]]()

    def stop(body: dict[str, Any]) -> None:
        planned.append(body)
        raise NotCommitted

    try:
        number = append_next(home, source, words, asked, by, promotes, access, stop)
    except NotCommitted:
        return planned[0]
    wanted = job_of_block(home, asked, number)
    with _naming_block(wanted, number):
        earlier = earlier_job(home, wanted, by, str(wanted.idempotency_key))
    body = plan_renewal(home, wanted, None, by, promotes) if earlier is None else job_to_json(home, earlier)
    return {**body, "block": number}


def renew(
    home: Home,
    source: RowSource,
    words: BlockWords,
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
    number = append_next(home, source, words, asked, by, promotes, access)
    wanted = job_of_block(home, asked, number)
    with _naming_block(wanted, number):
        body = job.train(
            home, wanted, by=by, key=wanted.idempotency_key, progress=progress, promotes=promotes, queued=True
        )
    return {**body, "block": number}


def append_waiting(home: Home, rule: Schedule, now: float, promotes: bool) -> bool:
    """Append the files of a schedule that have come, oldest name first; return whether there is a block that its last
    job did not read. A file that cannot be appended waits until it changes, and why is told to nobody but its steward:
    it may be a word of the rows. Raises as `plan_renewal`.
    """
    asked, rows = JobRequest.of(rule.asked), ScheduledRows(**(rule.rows or {}))
    for path in rows.waiting(home, asked.dataset, now):
        state = _state(path)
        try:
            append_next(home, RowSource(str(path)), rows.words(rule.by), asked, rule.by, promotes)
        except (InputError, OSError):
            LOG.warning("schedule %s: a file of its rows cannot be appended; dpserve renew says why", rule.name)
        _TRIED[path] = state
    dataset = home.ledger.dataset(asked.dataset)
    if rule.last is not None:
        return charged_window(home.ledger.reservation(rule.last[1]).value)[1] < (dataset.last or 1)
    return any(block.seq > (rule.seq or 0) for block in dataset.blocks)
