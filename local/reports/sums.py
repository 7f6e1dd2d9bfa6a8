"""What two aggregators say of a closed campaign, signed: whose shares open, the digest of the answer, and the answer:
the noisy sum of those that both hold.

Neither is believed: each statement is of a pinned key, about one campaign, and said once. A sum is of the owners whom
both named, so an owner whose share reached one aggregator alone is in neither.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import WrongState
from accountant.noise import shares
from accountant.noise.shares import Share
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import decode_base64, encode_base64, exact_integer, exact_object, exact_text
from dpserve_verify.keys import dsse
from local.reports.shared import AGGREGATORS, ForAggregators, SharedDefinition

HELD, DIGEST, SUM = "held", "digest", "sum"  # in this order
BEGIN, ROUND = "begin", "round"  # where institutions are asked in rounds: which process answers, and the sum of one
TYPES = {what: f"https://dpserve/aggregator/{what}/v1" for what in (HELD, DIGEST, SUM, BEGIN, ROUND)}
LIMIT = 1 << 20
Owners = NDArray[np.bool_]


@dataclass(frozen=True)
class NoisySum:
    """An aggregator's share (numbers,) of the sum over the `owners` (owners,) that both hold, with its own noise."""

    owners: Owners
    share: Share


def held_payload(definition: ForAggregators, aggregator: int, owners: Owners) -> bytes:
    """Return the statement that the shares of these owners (owners,) opened."""
    return _payload(definition, aggregator, HELD, {"owners": _bits(owners)})


def sum_payload(definition: SharedDefinition, aggregator: int, answer: NoisySum) -> bytes:
    """Return the statement of a noisy sum."""
    fields = {"owners": _bits(answer.owners), "share": encode_base64(shares.to_bytes(answer.share))}
    return _payload(definition, aggregator, SUM, fields)


def digest_payload(definition: ForAggregators, aggregator: int, answer: bytes) -> bytes:
    """Return the statement that this signed answer, and no other, will be sent: it is in the log before the answer
    leaves.
    """
    return _payload(definition, aggregator, DIGEST, {"answer": hashlib.sha256(answer).hexdigest()})


def read_digest(definition: ForAggregators, aggregator: int, envelope: bytes) -> str:
    """Read the sha256 in hex of the answer that an aggregator will send; CertificateInvalid where that one has not
    signed it, or not of this campaign.
    """
    answer = str(_read_statement(definition, aggregator, DIGEST, envelope, ("answer",))["answer"])
    if not re.fullmatch(r"[0-9a-f]{64}", answer):
        raise CertificateInvalid("digest: must be 64 hexadecimal digits")
    return answer


def read_held(definition: ForAggregators, aggregator: int, envelope: bytes) -> Owners:
    """Read whose shares opened; CertificateInvalid where that aggregator has not signed it, or not of this campaign."""
    return _owners(definition, _read_statement(definition, aggregator, HELD, envelope, ("owners",)))


def read_sum(definition: SharedDefinition, aggregator: int, envelope: bytes) -> NoisySum:
    """Read an aggregator's answer; CertificateInvalid where it has not signed it, or not of this campaign."""
    body = _read_statement(definition, aggregator, SUM, envelope, ("owners", "share"))
    return _sum_of(definition, body, definition.layout.numbers)


def _sum_of(definition: ForAggregators, body: dict[str, Any], numbers: int) -> NoisySum:
    try:
        share = shares.from_bytes(decode_base64(exact_text(body["share"], "share")))
    except InputError as error:
        raise CertificateInvalid(f"sum: {error.message}") from None
    if share.size != numbers:
        raise CertificateInvalid(f"sum: {share.size} numbers; must be {numbers}")
    return NoisySum(_owners(definition, body), share)


def begin_payload(definition: ForAggregators, aggregator: int, process: str) -> bytes:
    """Return the statement that one process, by a word that no other has, answers all rounds."""
    return _payload(definition, aggregator, BEGIN, {"process": process})


def round_payload(definition: ForAggregators, aggregator: int, turn: int, answer: NoisySum) -> bytes:
    """Return the statement of the noisy sum of one round."""
    fields = {"round": str(turn), "owners": _bits(answer.owners), "share": encode_base64(shares.to_bytes(answer.share))}
    return _payload(definition, aggregator, ROUND, fields)


def read_round_sum(definition: ForAggregators, aggregator: int, turn: int, numbers: int, envelope: bytes) -> NoisySum:
    """Read an aggregator's answer of a round, of so many numbers; CertificateInvalid where it has not signed it, or not
    of this round.
    """
    body = _read_statement(definition, aggregator, ROUND, envelope, ("round", "owners", "share"))
    if body["round"] != str(turn):
        raise CertificateInvalid(f"round: is {body['round']!r:.20}, and must be {turn}")
    return _sum_of(definition, body, numbers)


def add_answers(definition: SharedDefinition, answers: Mapping[int, bytes]) -> tuple[NDArray[np.int64], int]:
    """Add the answers of both: the noisy sum (numbers,) of the statistics, and of how many owners it is.

    WrongState where an aggregator has not answered; CertificateInvalid where the two speak of different owners.
    """
    missing = [at + 1 for at in range(AGGREGATORS) if at not in answers]
    if missing:
        raise WrongState(f"campaign={definition.campaign}: aggregator {missing[0]} has not answered", missing=missing)
    first, second = (read_sum(definition, at, answers[at]) for at in range(AGGREGATORS))
    if not np.array_equal(first.owners, second.owners):
        raise CertificateInvalid("sums: the two aggregators speak of different owners")
    return shares.join(first.share, second.share), int(first.owners.sum())


def _payload(definition: ForAggregators, aggregator: int, what: str, own: dict[str, str]) -> bytes:
    body: dict[str, Any] = {"aggregator": aggregator, "definition": definition.digest, **own}
    digest = hashlib.sha256(canonical.encode(body, LIMIT)).hexdigest()
    subject = [{"name": definition.campaign, "digest": {"sha256": digest}}]
    head: dict[str, Any] = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": TYPES[what],
    }
    return canonical.encode({**head, "predicate": body}, LIMIT)


def _read_statement(
    definition: ForAggregators, aggregator: int, what: str, envelope: bytes, fields: tuple[str, ...]
) -> dict[str, Any]:
    payload = dsse.verify(envelope, definition.aggregators[aggregator].signers)
    try:
        top = exact_object(
            canonical.decode_canonical(payload, LIMIT), ("_type", "subject", "predicateType", "predicate"), "statement"
        )
        body = exact_object(top["predicate"], ("aggregator", "definition", *fields), what)
        of = exact_integer(body["aggregator"], "aggregator"), body["definition"], top["predicateType"]
    except InputError as error:
        raise CertificateInvalid(f"{what}: {error.message}") from None
    if of != (aggregator, definition.digest, TYPES[what]):
        raise CertificateInvalid(f"{what}: is not aggregator {aggregator + 1}'s word on this campaign")
    return body


def _bits(owners: Owners) -> str:
    return encode_base64(np.packbits(owners).tobytes())


def _owners(definition: ForAggregators, body: dict[str, Any]) -> Owners:
    try:
        raw = decode_base64(exact_text(body["owners"], "owners"))
    except InputError as error:
        raise CertificateInvalid(f"owners: {error.message}") from None
    bits = np.unpackbits(np.frombuffer(raw, np.uint8)).astype(bool)
    if len(raw) != (definition.owners + 7) // 8 or bits[definition.owners :].any():
        raise CertificateInvalid(f"owners: must be {definition.owners} bits")
    return bits[: definition.owners]
