"""Statements that a server signed, verified here: signature, place in the ledger, and every figure by its counts."""

from __future__ import annotations

import json
from typing import Any

from accountant.certificates.profile import PROFILE, Profile
from accountant.certificates.statement_kinds import kind_in
from accountant.certificates.worth import WORTH, Worth
from dpserve.types import Json
from dpserve_verify.keys.trust import PublicKeys
from models.answers.stated import check_table
from models.profile.stated import check as check_profile
from models.worth.stated import check as check_worth
from serving.cli.backends.abstract import Body

SIGNED = ("envelope", "proof")


def verified_worth(answer: Json, keys: PublicKeys) -> tuple[Worth, Body]:
    """Verify an evaluation; return its statement, and its figures without what is signed."""
    statement = WORTH.verify(envelope_bytes(answer["envelope"]), answer["proof"], keys)
    check_worth(statement)
    return statement, {name: value for name, value in answer.items() if name not in SIGNED}


def verified_profile(answer: Json, keys: PublicKeys) -> tuple[Profile, Body]:
    """Verify a profile; return its statement, and its counts without what is signed."""
    statement = PROFILE.verify(envelope_bytes(answer["envelope"]), answer["proof"], keys)
    check_profile(statement)
    return statement, {name: value for name, value in answer.items() if name not in SIGNED}


def verified_answer(answer: Json, keys: PublicKeys, select: str) -> Body:
    """Verify the statement that a query's table follows from, and that it does; return the table."""
    envelope = envelope_bytes(answer["envelope"])
    check_table(kind_in(envelope).verify(envelope, answer["proof"], keys), select, answer["rows"])
    return {name: value for name, value in answer.items() if name not in SIGNED}


def envelope_bytes(envelope: Any) -> bytes:
    """Return an envelope as a file: what is signed is its payload, which is base64."""
    return json.dumps(envelope, separators=(",", ":")).encode()
