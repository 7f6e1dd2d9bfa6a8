"""The first job on rows that are not registered yet: its plan by `auto`, and the graph of an empty model.

What is registered stays, so a schema that no model could ever be learnt by is refused before it is: by the same steps
that a job takes, from public numbers alone. No row is read, nothing is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from accountant.errors import SchemaError
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from training.learners import LEARNERS
from training.learners.choice import choose
from training.planning.price_engine import ENGINE, first, without_labels
from training.rows.partitions.rows import MOST_ROWS
from training.rows.schema.schema import Schema
from training.session.session import Public, Rehearsal

if TYPE_CHECKING:
    from models.onnx import export
else:
    export = later("models.onnx.export")

CHECKED_EPSILON = Decimal(1)  # of a schema that is checked before a total is said


def check_first_job(
    schema: Schema,
    budget: Budget | None = None,
    relation: Relation = Relation.ADD_REMOVE,
    contributions: int = 1,
    holdout: Decimal | None = None,
) -> None:
    """Check that `auto` has a plan for each target within the whole total, whose model can be exported.

    Args:
        schema: The public schema, with all of its targets.
        budget: The total; None where it is not said yet: then one that any rows have.
        relation: The relation of the rows.
        contributions: How many rows one unit of privacy may have.
        holdout: The share of units that no job learns from.

    Raises:
        InputError: There is no such plan.
        SchemaError: No model can be exported.
    """
    total = budget or Budget(CHECKED_EPSILON, Decimal(1).scaleb(-len(str(schema.records)) - 1))
    for name in schema.target_names:
        public = Public.of(schema.question(name), relation, total, total.delta == 0, contributions)
        public = public if holdout is None else of_part(public, 1 - holdout)
        try:
            require_learnable_size(public)
            _export_empty(public, ENGINE.price(first, *without_labels(public)).unit)
        except InputError as error:
            raise InputError(f"{_unlearnable(name, total)}: {error.message}", **error.details) from None
        except ModelInvalid as error:
            raise SchemaError(f"schema: {_unlearnable(name, total)}: {error.message}") from None


def _unlearnable(target: str, total: Budget) -> str:
    epsilon, delta = total.to_json().values()
    return f"target={target!r}: `auto` could not learn it, even with epsilon {epsilon} at delta {delta}"


def _export_empty(public: Public, unit: Decimal) -> None:
    """Export a model that was learnt from no rows, in one round where the learner has rounds. Whether one of all rounds
    fits is known by its plan.
    """
    learner: Callable[..., Any] = LEARNERS[choose(public).learner]
    empty = learner(rounds=1) if "rounds" in learner().get_params() else learner()
    export.to_onnx(empty.learn(Rehearsal(public, unit)), export.metadata_of("rehearsal", "rehearsal", 0, public.target))


def of_part(public: Public, share: Decimal) -> Public:
    """Return what is public of a part of the rows: the schema's records are of all parts."""
    return replace(public, records=max(1, round(public.records * share)))


def require_learnable_size(public: Public) -> None:
    """Raise InputError where there are more rows, publicly, than can be learnt from at once."""
    if public.relation is Relation.REPLACE_ONE and public.records > MOST_ROWS:
        raise InputError(f"records={public.records}: at most {MOST_ROWS} rows can be learnt from at once")
