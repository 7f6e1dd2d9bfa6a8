"""Queries of a learner's own: a class of its file that answers from rows, and how far a row moves the answer by its
author's word. dpserve has no proof of that word; record and play attacks it, and certificates say whose it is.

Law. A query is a function of the rows and its arguments alone: each is answered by a fork, sealed, that had the rows
and nothing of what was asked before. What is declared is of one row more or less; one that replaces another is two such
steps. The exact answer comes back to dpserve, and no sooner goes on than its time is over; what is drawn around it is
all that the learner hears. A query that fails, answers in another form or takes longer ends the run, with one sentence.
"""

from __future__ import annotations

import json
import time
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpserve_platform.outside.child import GREATEST
from dpserve_platform.outside.forms import whole_number
from dpserve_platform.outside.process import MEMORY, OutsideFailed, SealedProcess
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.declared import NAME, purpose_of_own
from training.rows.engine import engine_address
from training.rows.partitions.rows import Rows
from training.session.session import Public, Source

MOST_VALUES, MOST_SENSITIVITY, MOST_SECONDS = 1 << 16, 1 << 30, 60
LONGEST_ARGUMENTS = 1 << 16
START_SECONDS = 3.0  # that the first answer takes longer: the process starts, and is sent the rows
MOST_BYTES = 1 << 28  # of as many rows as are declared
ROW_MEMORY = 4 * MEMORY


class Answering:
    """The process that has the rows and answers a learner's queries of its own, from the first on, for one run.
    `waits`: whether an answer is here when its time is over and no sooner, as in a job; a check does not wait.
    """

    def __init__(self, source: Source, waits: bool) -> None:
        self._source, self._waits = source, waits
        self._process: SealedProcess | None = None

    @property
    def made_of(self) -> tuple[Source, bool]:
        """Return what it is known by: which process answers, or whether one does yet, is nothing that a query asks."""
        return self._source, self._waits

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.__exit__()

    def answer(self, query: OwnQuery, rows: Rows) -> NDArray[np.int64]:
        """Return the exact answer. OutsideFailed, in words that are the same whatever was wrong."""
        end = time.monotonic() + query.seconds
        try:
            if self._process is None:
                end += START_SECONDS
                self._process = SealedProcess(self._source.modules, ROW_MEMORY, answers=True).__enter__()
                self._process.send({"source": self._source.text}, rows)
            self._process.send({
                "kind": query.kind, "arguments": json.loads(query.arguments), "size": query.size,
                "seconds": query.seconds,
            })  # fmt: skip
            values = self._process.read()["answer"]
            exact = np.array([whole_number(value, -GREATEST, GREATEST) for value in values], np.int64)
            if exact.shape != (query.size,):
                raise OutsideFailed("")
        except (KeyError, OutsideFailed, TypeError):
            raise OutsideFailed(
                f"learner: its own query {query.kind} failed, answered otherwise than by {query.size} whole numbers of "
                f"at most 2^40 in size, or took longer than {query.seconds} s; no more is said, for it may tell of rows"
            ) from None
        if self._waits:
            time.sleep(max(0.0, end - time.monotonic()))
        return exact


@dataclass(frozen=True)
class OwnQuery:
    """A query of a learner's own, of the class `kind` made with `arguments` (JSON). `declared`: how far one row more or
    less moves its `size` answers, in `norm`.
    """

    kind: str
    arguments: str
    size: int
    declared: int
    norm: str
    seconds: int
    answering: InitVar[Answering]

    def __post_init__(self, answering: Answering) -> None:
        object.__setattr__(self, "_answering", answering)

    @property
    def purpose(self) -> str:
        """Return what a plan says that it asks."""
        return purpose_of_own(self.kind)

    def sensitivity(self, relation: Relation) -> int:
        """Return what is declared, twice where a row replaces another."""
        return self.declared * (2 if relation is Relation.REPLACE_ONE else 1)

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        exact: NDArray[np.int64] = getattr(self, "_answering").answer(self, rows)  # noqa: B009
        return exact


def read_own(said: dict[str, Any], public: Public, norm: str, source: Source, answering: Answering) -> OwnQuery:
    """Read a query of its own. InputError where rows lie elsewhere, or it was not admitted with such queries."""
    kind, arguments = said["kind"], said["arguments"]
    if not isinstance(kind, str) or not NAME.fullmatch(kind):
        raise OutsideFailed(f"learner: kind={kind!r:.60} must be the name of a class of its file")
    if source.own is not None and kind not in source.own:
        raise InputError(
            f"learner: {kind} is a query of its own, whose sensitivity is declared and not proved, and it was not "
            "admitted with it; admit it again: dpserve learner admit ... --declared"
        )
    if public.shared or engine_address() is not None:
        raise InputError(
            f"learner: {kind} is a query of its own, which needs the rows in one process; ask for the job where they "
            "are on this machine, with DPSERVE_ENGINE=local"
        )
    if public.records * (2 * len(public.features) + 4) > MOST_BYTES:
        raise InputError(f"learner: {kind} is a query of its own, and {public.records} rows are too many for one")
    try:
        text = json.dumps(arguments, sort_keys=True)
    except RecursionError:
        text = ""
    if not isinstance(arguments, dict) or not 0 < len(text) <= LONGEST_ARGUMENTS:
        raise OutsideFailed(f"learner: arguments must be an object, of at most {LONGEST_ARGUMENTS} characters as JSON")
    return OwnQuery(
        kind,
        text,
        whole_number(said["size"], 1, MOST_VALUES),
        whole_number(said["sensitivity"], 1, MOST_SENSITIVITY),
        norm,
        whole_number(said["seconds"], 1, MOST_SECONDS),
        answering,
    )
