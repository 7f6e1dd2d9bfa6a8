"""What stands before a learner in a scikit-learn Pipeline: a step that learns from rows is outside every promise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from dpserve_verify.errors import InputError


def check_steps_before(learner: object) -> None:
    """Raise InputError where a Pipeline is fitting this learner, and a step before it is fitted to the rows as well:
    what such a step learnt (a mean, a choice of columns) is released with the model, and nobody pays for it.

    Only the Pipeline knows its steps, so the calls that led here are looked through. A guard against accidents: what
    was fitted outside of a Pipeline is not seen.
    """
    for holder, _ in _pipelines_of(learner):
        check_steps(holder)


def check_steps(pipeline: Any) -> None:
    """Raise InputError where a step before the last one is fitted to the rows."""
    learning = next((words for name, step in pipeline.steps[:-1] for words in _learning(name, step)), None)
    if learning is not None:
        raise InputError(
            f"Pipeline: {learning} is fitted to the rows, which nobody pays for; leave it out (a learner needs no "
            "scaling, encoding or imputing: columns are cut by their declared ranges and values, and what is missing "
            "has a bin of its own), or say an encoder's `categories`, or fit it to public rows and hand it in as "
            "sklearn.frozen.FrozenEstimator"
        )


def rows_before_steps(learner: object, X: Any) -> Any:
    """Return the rows that the outermost Pipeline was given which is fitting this learner to X; X where none is. They
    are people's own: what steps make of two rows may be the same.
    """
    *_, whose = (X, *(rows for _, rows in _pipelines_of(learner)))
    return whose


def _pipelines_of(learner: object) -> Iterator[tuple[Any, Any]]:
    """Yield the Pipelines that are fitting this learner as their last step, and the X of each, from within."""
    module = sys.modules.get("sklearn.pipeline")
    frame = sys._getframe(1) if module is not None else None
    while frame is not None and module is not None:
        holder = frame.f_locals.get("self")
        if (
            frame.f_globals.get("__name__") == module.__name__
            and isinstance(holder, module.Pipeline)
            and "X" in frame.f_locals
            and holder.steps
            and _ends_with(holder, learner)
        ):
            yield holder, frame.f_locals["X"]
        frame = frame.f_back


def _ends_with(pipeline: Any, learner: object) -> bool:
    last = pipeline.steps[-1][1]
    return last is learner or (isinstance(last, type(pipeline)) and bool(last.steps) and _ends_with(last, learner))


def _learning(name: str, step: Any) -> Iterator[str]:
    """Yield which steps learn from the rows that they are fitted to; of steps within, which of these."""
    if step is None or isinstance(step, str):  # "passthrough", "drop"
        return
    within = (
        getattr(step, "steps", None) or getattr(step, "transformers", None) or getattr(step, "transformer_list", None)
    )
    if within:
        yield from (f"{name}: {words}" for named in within for words in _learning(named[0], named[1]))
        return
    from sklearn.frozen import FrozenEstimator  # is loaded, as its Pipeline is
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
    from sklearn.utils import get_tags

    knows_all = type(step) in (OneHotEncoder, OrdinalEncoder) and not (
        isinstance(step.categories, str) or step.min_frequency or step.max_categories
    )
    if not (knows_all or isinstance(step, FrozenEstimator)) and get_tags(step).requires_fit:
        yield f"{name} ({type(step).__name__})"
