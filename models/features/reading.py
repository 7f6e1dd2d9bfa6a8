"""Which of a dataset's features a model reads, by two parameters of every learner: public names, which no row has a say
in. Of columns that a job does not read nothing is learnt, and whoever asks the model sends none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    from models.features.features import Feature

READING, ALL = ("features", "without"), "all"
MAX_CHARACTERS = 1 << 14  # characters, for a ledger entry holds them
LONGEST = 200  # characters that a column's name has at most


def is_column_name(name: str) -> bool:
    """Return whether a schema may speak of a column of this name, and a model read it."""
    return 0 < len(name) <= LONGEST and name.isprintable() and not name.startswith("/")


def choose_features(known: Sequence[Feature], features: object = None, without: object = None) -> tuple[Feature, ...]:
    """Choose among the `known` ones, in their order, these `features` alone (None, "all": every one), or all but those
    `without` which the model is. InputError where a name is none of them, both are given, or nothing is left.
    """
    only = (
        None if features is None or (isinstance(features, str) and features == ALL) else names_in("features", features)
    )
    out = names_in("without", without)
    if only is not None and out:
        raise InputError("features, without: name those to learn from, or those to leave out, not both")
    there = dict.fromkeys(feature.name for feature in known)
    for option, names in (("features", only or ()), ("without", out)):
        for wrong in (name for name in names if name not in there):
            similar = get_close_matches(wrong[:LONGEST], there, n=1)
            meant = f"did you mean {similar[0]!r}?" if similar else f"there are {', '.join([*there][:20])}"
            raise InputError(f"{option}: {wrong!r:.80} is no feature that this job can learn from; {meant}")
    wanted = {*(there if only is None else only)}.difference(out)
    chosen_features = tuple(chosen_feature for chosen_feature in known if chosen_feature.name in wanted)
    if not chosen_features:
        raise InputError("features: none is left to learn from")
    return chosen_features


def names_in(what: str, value: object) -> tuple[str, ...]:
    """Return names in a list, in its JSON, or in one text with commas between them. InputError where they are no names,
    or one stands there twice.
    """
    names: Any = () if value is None or (isinstance(value, str) and not value) else value
    if isinstance(names, str) and len(names) <= MAX_CHARACTERS:
        with suppress(ValueError, RecursionError):
            names = json.loads(names) if names.startswith("[") else [name.strip() for name in names.split(",")]
    if isinstance(names, list | tuple | str) and sum(map(len, map(str, names))) > MAX_CHARACTERS:
        raise InputError(f"{what}: names of more than {MAX_CHARACTERS} characters together; name those that are fewer")
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what}={value!r:.80}: must be names of columns, such as age,hours_per_week")
    if len(set(names)) < len(names):
        raise InputError(f"{what}={value!r:.80}: a name stands there twice")
    return tuple(names)
