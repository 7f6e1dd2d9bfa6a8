"""What stands before a learner in a scikit-learn Pipeline: a step that learns from rows is outside every promise."""

from __future__ import annotations

import sys
from typing import Any

from dpserve_verify.errors import InputError


def check_steps_before(learner: object) -> None:
    """Raise InputError where a Pipeline is fitting this learner, and a step before it is fitted to the rows as well:
    what such a step learnt (a mean, a choice of columns) is released with the model, and nobody pays for it.

    Only the Pipeline knows its steps, so the calls that led here are looked through. A guard against accidents: what
    was fitted outside of a Pipeline is not seen.
    """
    module = sys.modules.get("sklearn.pipeline")
    frame = sys._getframe(1) if module is not None else None
    while frame is not None and module is not None:
        holder = frame.f_locals.get("self")
        if isinstance(holder, module.Pipeline) and holder.steps and _ends_with(holder, learner):
            for name, step in holder.steps[:-1]:
                if _learns(step):
                    raise InputError(
                        f"Pipeline: {name} ({type(step).__name__}) is fitted to the rows, which nobody pays for; leave "
                        "it out (a learner needs no scaling: columns are cut by their declared ranges), or fit it to "
                        "public rows and hand it in as sklearn.frozen.FrozenEstimator"
                    )
        frame = frame.f_back


def _ends_with(pipeline: Any, learner: object) -> bool:
    last = pipeline.steps[-1][1]
    return last is learner or (isinstance(last, type(pipeline)) and bool(last.steps) and _ends_with(last, learner))


def _learns(step: Any) -> bool:
    """Return whether a step learns from the rows that it is fitted to; of steps within, whether one does."""
    if step is None or isinstance(step, str):  # "passthrough", "drop"
        return False
    within = (
        getattr(step, "steps", None) or getattr(step, "transformers", None) or getattr(step, "transformer_list", None)
    )
    if within:
        return any(_learns(named[1]) for named in within)
    from sklearn.frozen import FrozenEstimator  # is loaded, as its Pipeline is
    from sklearn.utils import get_tags

    return not isinstance(step, FrozenEstimator) and bool(get_tags(step).requires_fit)
