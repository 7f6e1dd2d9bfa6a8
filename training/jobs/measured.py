"""Plans of what is measured, for a server: from the words of a request alone, by a process that opens the home itself
and may be ended at any time. What a query is, how long it takes to read, and what its price takes, the caller decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accountant.home import Home
from training.kinds.registry import stated_steps
from training.kinds.stated_steps import Reservable
from training.measuring.answers.answers import answer_of


def price(asked: Any, by: str) -> bytes:
    """Return the plan of a measurement as JSON; it spends nothing. Raises as `StatedSteps.plan`."""
    with _home() as home:
        planned: Any = stated_steps(type(asked)).plan(home, asked, by)
        return json.dumps(planned.to_json()).encode()


def plan(asked: Any, by: str) -> Reservable:
    """Return what is reserved for a measurement. Raises as `StatedSteps.plan`."""
    with _home() as home:
        return Reservable.of(stated_steps(type(asked)).plan(home, asked, by))


def answer(seq: int, select: str) -> tuple[bytes, bytes, bytes]:
    """Return the envelope and the proof of a finished answer or profile, and as JSON the table of a query that follows
    from it. Raises as `answer_of`.
    """
    with _home() as home:
        envelope, proof, _, body = answer_of(home, seq, select)
    return envelope, proof, json.dumps(body).encode()


@contextmanager
def _home() -> Iterator[Home]:
    home = Home.open()
    try:
        yield home
    finally:
        home.ledger.log.database.close()
