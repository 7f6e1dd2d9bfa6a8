"""Check a learner: record it on rows, play it on many neighbours, and say what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from accountant.errors import PlanMismatch
from dpserve_platform.replay.neighbours import packed, pairs
from dpserve_platform.replay.tapes import Divergence, play, record
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from training.calibration.calibrate import calibrate
from training.rows.schema.schema import Schema
from training.session.session import Public

# What a check refuses, and what each means.
KINDS = {
    "plan": "it leaves its plan: more releases, fewer, or others than it was rehearsed with",
    "question": "it asks something else, after the same answers: it knows something of rows that no answer told",
    "outcome": "it returns something else, after the same answers",
    "sensitivity": "a neighbour moves an answer further than is declared",
    "answer": "an answer has another shape on a neighbour, or is not of whole numbers",
    "mechanism": "its noise is not of dpserve's mechanisms, or depends on the rows",
    "error": "it fails while it learns",
}
MOST_NEIGHBOURS = 100_000
ROWS = 2_000  # of the largest made-up tables, where no dataset says more


@dataclass(frozen=True)
class Fault:
    """One thing that a private learner does not do: its kind (`KINDS`), which neighbour showed it, and in words."""

    kind: str
    neighbour: str
    words: str

    def to_json(self) -> dict[str, str]:
        """Return it for programs."""
        return {"kind": self.kind, "neighbour": self.neighbour, "words": self.words}


@dataclass
class Report:
    """What a check saw. `releases`: of a run; `neighbours`: how many were played; `reached`: of each kind of query, how
    much of its sensitivity a neighbour moved it at most; `faults`: the first, or none; `schemas`: the digests of those
    that it was played on; `rows`: of the largest table.
    """

    releases: int = 0
    neighbours: int = 0
    reached: dict[str, float] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    schemas: list[str] = field(default_factory=list)
    rows: int = 0

    def add(self, other: Report) -> None:
        """Take in what was seen on another schema."""
        self.releases = max(self.releases, other.releases)
        self.neighbours += other.neighbours
        for name, share in other.reached.items():
            self.reached[name] = max(self.reached.get(name, 0.0), share)
        self.rows = max(self.rows, other.rows)
        self.faults += other.faults
        self.schemas += [each for each in other.schemas if each not in self.schemas]

    @property
    def ok(self) -> bool:
        """Tell whether nothing was seen that a private learner does not do."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "ok": self.ok,
            "releases": self.releases,
            "neighbours": self.neighbours,
            "reached": {name: round(share, 6) for name, share in sorted(self.reached.items())},
            "faults": [fault.to_json() for fault in self.faults],
            "schemas": self.schemas,
            "rows": self.rows,
        }


def check(
    make: Callable[[], Any],
    schema: Schema,
    public: Public,
    neighbours: int,
    rows: int = ROWS,
    table: pa.Table | None = None,
) -> Report:
    """Record and play a learner on so many neighbours, up to the first fault.

    Args:
        make: Makes the learner anew, for each run: what has `learn(session)`.
        schema: The question, of one target, as the learner reads it.
        public: What the learner may know; its relation and contributions say what neighbours are.
        neighbours: How many.
        rows: How many each made-up table has.
        table: The rows to begin with, in place of made-up ones. The report then tells of them: it is for their steward.

    InputError where the learner refuses the job before it sees rows.
    """
    if not 1 <= neighbours <= MOST_NEIGHBOURS:
        raise InputError(f"neighbours={neighbours}: must be 1 to {MOST_NEIGHBOURS}")
    if rows <= public.contributions:
        raise InputError(f"rows={rows}: must be more than the {public.contributions} that one person may have")
    if table is None and public.relation is Relation.REPLACE_ONE:  # where the number of rows is public
        schema, public = replace(schema, records=rows), replace(public, records=rows)
    report, where = Report(schemas=[schema.digest]), "the first run"
    try:
        learner = make()  # what has nothing but `learn` is planned by calibration alone
        recipe = learner.recipe(public) if hasattr(learner, "recipe") else calibrate(learner, public, public.budget)
        how = public, recipe.unit, recipe.plan
        for base, others in pairs(schema, table, rows, public.relation, public.contributions, neighbours):
            report.rows = max(report.rows, len(base))
            rows_of_base = packed(schema, base, public.relation)
            for other, words in others:  # each with answers of its own: what a learner does by them is seen so
                where = "the first run"
                tape = record(make(), *how, rows_of_base.fresh())
                report.releases, where = len(tape.releases), words
                report.neighbours += 1
                for name, share in play(tape, make(), *how, other).items():
                    report.reached[name] = max(report.reached.get(name, 0.0), share)
    except Divergence as seen:
        report.faults.append(Fault(seen.kind, where, seen.words))
    except PlanMismatch as error:  # of a rehearsal: query and mechanism do not go together
        report.faults.append(Fault("plan", "the rehearsal", error.message))
    return report
