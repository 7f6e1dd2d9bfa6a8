"""Statements that a server signed, verified here: signature, place in the ledger, and every figure by its counts."""

from __future__ import annotations

import json
from typing import Any

from accountant.certificates.answer import ANSWER
from accountant.certificates.profile import PROFILE
from accountant.certificates.statement_kind import StatementKind
from accountant.certificates.statement_kinds import kind_in
from accountant.certificates.worth import WORTH
from dpserve.types import Json
from dpserve_verify.certificates.stated import Stated
from dpserve_verify.keys.trust import PublicKeys
from models.answers.stated import check_table
from models.profile.stated import check as check_profile
from models.worth.stated import check as check_worth
from models.worth.statements import worth_to_json
from serving.cli.backends.abstract import Body
from training.measuring.profile.release import profile_to_json

READERS: dict[StatementKind[Any], Any] = {
    WORTH: (check_worth, worth_to_json),
    PROFILE: (check_profile, profile_to_json),
}


def verified(kind: StatementKind[Any], answer: Json, keys: PublicKeys, select: str = "") -> tuple[Stated[Any], Body]:
    """Verify the statement of an evaluation, a profile or an answer, and that every figure follows from its counts, or
    the table of `select`, which a profile may answer too. Return it, and what it says for programs.
    """
    envelope = envelope_bytes(answer["envelope"])
    stated = (kind_in(envelope) if kind is ANSWER else kind).verify(envelope, answer["proof"], keys)
    if kind is ANSWER:
        check_table(stated, select, answer["rows"])
        return stated, {name: value for name, value in answer.items() if name not in ("envelope", "proof")}
    check, to_json = READERS[kind]
    check(stated)
    return stated, to_json(answer["job"], stated)


def envelope_bytes(envelope: Any) -> bytes:
    """Return an envelope as a file: what is signed is its payload, which is base64."""
    return json.dumps(envelope, separators=(",", ":")).encode()
