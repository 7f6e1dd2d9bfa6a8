"""From a query to a reserved answer: groups, noise and price; or, for nothing, to a statement that it follows from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from math import prod
from typing import Any

from accountant.certificates.answer import Answer
from accountant.certificates.statement_kinds import kind_at
from accountant.home import Home
from accountant.ledger.families.block_rows import require_kept
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.records import HOLDOUT, Request
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.weights import parts_of
from models.answers.question import Question
from models.answers.sampled import describe_rows
from models.answers.table import Released, Table, best_answer, released_by
from models.parts.forecast import forecast_counts
from models.profile.figures import LEVEL, number
from models.profile.stated import noise_of
from training.measuring.answers.cells import TableCells
from training.measuring.answers.known_answers import find_answer
from training.measuring.answers.sums import GRID, adder_of, layout_of, measures_of, query_of
from training.measuring.planning import Planned, open_account, require_admitted
from training.measuring.profile.profile import MOST_CELLS, MOST_NOISE, cheapest, smaller
from training.planning.counted_before import as_counted
from training.planning.plans import public_of
from training.requests import QueryRequest
from training.rows.schema.schema import schema_of

NAME = "query"  # stands in the place of a learner
FREE = Decimal(1)  # stands for the epsilon of a request that is answered by what was released, or not at all


@dataclass(frozen=True)
class PlannedAnswer(Planned):
    """The answer to a query. `table`: where it follows from what was released; `rows`: about how many it reads."""

    question: Question
    noise: str
    within: float
    groups: int
    rows: int
    table: Table | None

    def bought(self) -> dict[str, Any]:
        """Return what is added up, and how far off a count will be."""
        hope = forecast_counts(self.within, self.rows / self.groups, float(self.request.budget.epsilon))
        return {
            "noise": self.noise,
            "count_within": f"{self.within:.1f}",
            "groups": self.groups,
            "question": self.question.to_json(),
            "expected": {"rows": self.rows, **hope.to_json()},
        }


def plan(home: Home, query_request: QueryRequest, by: str | None = None) -> PlannedAnswer:
    """Rehearse and price, unless it follows from what was released at least as exactly; without an epsilon, only then.
    BudgetRefused where it would not be admitted now, with what would fit. InputError where nothing answers it. Spends
    nothing.
    """
    is_free = query_request.epsilon is None
    paid = replace(query_request, epsilon=FREE) if is_free else query_request
    part = HOLDOUT if query_request.part == HOLDOUT else None
    dataset, budget, schema = open_account(home, paid, part, by)
    cells = TableCells(schema)
    question = cells.question(query_request.select, query_request.dataset)
    public = public_of(dataset, schema.question(schema.target_names[0]), budget)
    makes = partial(adder_of, question, cells)
    norm, recipe = cheapest(makes, public)
    noise, query = noise_of(recipe.plan, GRID * parts_of(schema.weight)), query_of(question, cells, norm)
    request = Request(
        query_request.dataset, NAME, budget, {"select": question.select, "noise": norm}, "", kind=Profile(), part=part,
        blocks=query_request.blocks, window=dataset.window, registered=dataset.seq,
    )  # fmt: skip
    known = find_answer(home, dataset, request, question, schema)
    measures = measures_of(question, cells)
    own = Released.promised(*layout_of(question, len(measures)), measures, noise).spread_of(question)
    assert own is not None  # a question follows from its own sums
    if known is not None and not is_free and known[1].spread > own:
        known = None
    draws = 2 if all(each.is_sum for each in measures) else 1  # of a count that is no sum of its own
    within = noise.z * (draws * noise.variance) ** 0.5
    if known is None:
        if is_free:
            raise InputError(
                "epsilon: nothing that was released answers this query; say what it may cost, --epsilon 0.1 for "
                "instance (--plan spends nothing)"
            )
        require_kept(dataset, query_request.blocks)
        most = MOST_CELLS if schema.weight is None else MOST_CELLS // 2  # whose parts are longer numbers
        if query.size > most:
            raise InputError(f"select: {query.size} sums in all, and an answer has at most {most}; group by less")
        if within > MOST_NOISE:
            raise InputError(f"epsilon: so small that a count would be off by {within:.0e} rows; ask for more")
        require_admitted(dataset, request, recipe, smaller(dataset, makes, public))
    kind = "laplace" if noise.laplace else "gaussian"
    seq, table = known or (None, None)
    groups = prod(map(len, question.group_codes()))
    rows = (public if known else as_counted(home, dataset, public)).records
    return PlannedAnswer(request, recipe, dataset, seq, question, kind, within, groups, rows, table)


def answer_of(home: Home, seq: int, select: str | None = None) -> tuple[bytes, bytes, Answer, dict[str, Any]]:
    """Return the envelope and the proof of a finished answer or profile, what it says, verified, and the table of a
    query that follows from it, for programs: its own when `select` is left out. UnknownName where there is no such
    statement, InputError where the query does not follow from it.
    """
    kind = kind_at(home, seq)
    envelope, proof, stated = kind.open(home, seq)
    if select is None:
        select = str(stated.statement["predicate"].get("select", ""))
        if not select:
            raise InputError(f"select: job {seq} counted a profile; say which query it shall answer")
    schema = schema_of(home, home.ledger.dataset(stated.form.rows.dataset))
    cells = TableCells(schema)
    question = cells.question(select, stated.form.rows.dataset)
    table = best_answer(released_by(stated), question)
    if table is None:
        raise InputError(f"select: does not follow from what job {seq} released")
    return envelope, proof, stated, answer_to_json(seq, stated, table)


def answer_to_json(seq: int, stated: Answer, table: Table) -> dict[str, Any]:
    """Return a table for programs, with the statement that it follows from."""
    form = stated.form
    return {
        "job": seq,
        "entry": stated.entry,
        "dataset": form.rows.dataset,
        "schema": stated.sha256,
        "part": form.rows.part,
        "of": describe_rows(form.rows, form.claim.unit),
        "epsilon": form.claim.epsilon,
        "delta": form.claim.delta,
        "level": LEVEL,
        **table.to_json(),
    }


def released_fields(question: Question, cells: TableCells, counts: list[int], spent: Plan) -> dict[str, Any]:
    """Return what a statement says of these counts."""
    measures = measures_of(question, cells)
    by, where = layout_of(question, len(measures))
    return {
        "select": question.select,
        "by": [column.to_json() for column in by],
        "where": [condition.to_json() for condition in where],
        "measures": [measure.to_json() for measure in measures],
        "grid": (grid := GRID * parts_of(cells.schema.weight)),
        "variance": number(noise_of(spent, grid).variance),
        "counts": counts,
        "level": LEVEL,
    }
