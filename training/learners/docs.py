"""What every learner takes, for forms and documentation: from its own docstring and signature."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args, get_origin, get_type_hints

from models.features.reading import READING
from training.learners import LEARNERS
from training.learners.base.estimator import parameters_of
from training.learners.parameters import defaults_of

KINDS: dict[Any, str] = {bool: "boolean", float: "number", int: "whole"}


def learners_to_json() -> list[dict[str, Any]]:
    """Return every learner by its name: `says` in a sentence, and `parameters` with `name`, `kind`, `default`,
    `choices`.

    `kind`: "whole", "number", "boolean", "choice" or "text". `default` None: by a public rule.
    """
    learners = []
    for name, learner in LEARNERS.items():
        hints, about, defaults = get_type_hints(learner), inspect.getdoc(learner) or "", defaults_of(name)
        taken = sorted((key for key in parameters_of(learner) if key in defaults), key=lambda key: key not in READING)
        parameters = []
        for key in taken:
            types = get_args(hints[key]) or (hints[key],)
            words = [hint for hint in (hints[key], *types) if get_origin(hint) is Literal]
            choices = [choice for hint in words for choice in get_args(hint)]
            kind = "choice" if choices else next((kind for type, kind in KINDS.items() if type in types), "text")
            parameters.append({"name": key, "kind": kind, "default": defaults[key], "choices": choices})
        says = " ".join(about.partition("\n\n")[0].split())
        learners.append({"name": name, "says": says, "parameters": parameters})
    return learners
