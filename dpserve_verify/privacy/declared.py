"""Queries of a learner's own: what a plan says of one, and by whose word a row moves it by no more than is priced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dpserve_verify.errors import InputError

AUTHOR, TESTED = "author", "tested"  # among a job's parameters: who wrote a learner of others, how it was tested
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,39}", re.ASCII)  # of the class that answers
OWN = re.compile(f"answer ({NAME.pattern}), by a sensitivity that is declared, as a learner of others asks", re.ASCII)
DECLARED = "that a row moves the learner's own queries"  # by no more than somebody declares


def purpose_of_own(kind: str) -> str:
    """Return what a plan says of a query that the class `kind` answers."""
    return f"answer {kind}, by a sensitivity that is declared, as a learner of others asks"


def own_kind(purpose: str) -> str | None:
    """Return the class that answers a query of this purpose; None of others."""
    found = OWN.fullmatch(purpose)
    return found and found[1]


def declared_of(purposes: Iterable[str], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Say by whose word rows move a learner's own queries, and how that was tested; nothing where there are none.
    InputError where the statement does not tell.
    """
    own = sorted({kind for purpose in purposes if (kind := own_kind(purpose))})
    if not own:
        return ()
    author, tested = parameters.get(AUTHOR), parameters.get(TESTED)
    if not isinstance(author, str) or type(tested) is not int or tested < 1:
        raise InputError(f"mechanisms: {own[0]} is declared, and no hyper-parameters say by whom and how it was tested")
    sentence = (
        f"{DECLARED} ({', '.join(own)}) by no more than is declared: it is the word of "
        f"{author}, tested on {tested} made-up neighbours and not proved; where it is wrong, so is the claim"
    )
    return (sentence,)
