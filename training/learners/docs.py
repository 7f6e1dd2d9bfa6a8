"""What every learner takes, for forms and documentation: from its own docstring and signature."""

from __future__ import annotations

import inspect
from inspect import signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

from training.learners import LEARNERS
from training.parameters import defaults_of


def learners_to_json() -> list[dict[str, Any]]:
    """Every learner by its name: `says` in a sentence, and `parameters` with `name`, `kind`, `default`, `choices`.

    `kind`: "whole", "number", "boolean" or "choice". `default` None: a public rule, from the schema and the budget.
    """
    learners = []
    for name, learner in LEARNERS.items():
        hints, about, defaults = get_type_hints(learner), inspect.getdoc(learner) or "", defaults_of(name)
        taken = [key for key in signature(learner).parameters if key in defaults]
        parameters = []
        for key in taken:
            choices = list(get_args(hints[key])) if get_origin(hints[key]) is Literal else []
            types = get_args(hints[key]) or (hints[key],)
            kind = "choice" if choices else "boolean" if bool in types else "number" if float in types else "whole"
            parameters.append({"name": key, "kind": kind, "default": defaults[key], "choices": choices})
        says = " ".join(about.partition("\n\n")[0].split())
        learners.append({"name": name, "says": says, "parameters": parameters})
    return learners
