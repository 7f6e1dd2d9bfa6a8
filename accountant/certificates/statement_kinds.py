"""The kinds of statements about released counts."""

from __future__ import annotations

from typing import Any

from accountant.certificates.answer import ANSWER
from accountant.certificates.attack import ATTACK
from accountant.certificates.profile import PROFILE
from accountant.certificates.statement_kind import Place, StatementKind
from accountant.certificates.worth import WORTH

STATEMENTS: tuple[StatementKind[Any], ...] = (PROFILE, ANSWER, WORTH, ATTACK)


def kind_in(envelope: bytes) -> StatementKind[Any]:
    """Return the kind that an envelope says it holds; where that is unknown, one that will not verify it."""
    return next((kind for kind in STATEMENTS if kind.is_in(envelope)), WORTH)


def kind_at(home: Place, seq: int) -> StatementKind[Any]:
    """Return the kind of statement of a job that counted a table: an answer, where one is here, or a profile."""
    return ANSWER if ANSWER.file(home, seq).exists() else PROFILE


if __name__ == "__main__":  # profile, answer, worth or attack
    import json
    import sys

    print(json.dumps(next(kind for kind in STATEMENTS if kind.word == sys.argv[1]).json_schema(), indent=2))
