"""Asking the service of a campaign: over HTTPS, and believing what a pinned key has signed and the pinned log holds."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from accountant.errors import WrongState
from accountant.system.bounded_http import SCHEMES, Reply, exchange, is_this_machine
from dpserve_verify.errors import (
    CertificateInvalid,
    DpserveError,
    InputError,
    KeyInvalid,
    LedgerUnavailable,
    OtherHistory,
)
from dpserve_verify.formats.canonical import exact_integer, exact_text
from dpserve_verify.formats.canonical_bytes import decode_entry
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import notes, proofs
from dpserve_verify.log.seen_checkpoints import SeenCheckpoints, read_growth
from dpserve_verify.log.witness_policy import read_witness_policy
from dpserve_verify.system.printable import printable
from local.campaign.questions import question_from_payload
from local.reports.question import Question
from local.turns.definition import BoostedDefinition
from local.turns.so_far import NOTHING

MAX_ANSWER = 1 << 21
SECONDS = 20.0  # for the whole of an answer, connecting included
TRIES = 5  # another process of the same owner may have seen more between the question and the answer
T = TypeVar("T")
JSON, BYTES = "application/json", "application/octet-stream"
Carry = Callable[
    [str, str, bytes], Reply
]  # a method, a path and a body to the service; LedgerUnavailable without answer


@dataclass(frozen=True)
class Place:
    """Where the service is: its address, https or http to this machine; the file of the pinned keys of who asks; that
    of the certificates that may speak for the service, None for the system's; the checkpoints of its ledger that were
    seen from here, with the witnesses that are asked for; and what carries requests to it, where HTTP does not.
    """

    url: str
    trust: Path
    ca: Path | None
    seen: SeenCheckpoints
    carry: Carry | None = field(default=None, kw_only=True)


def check_url(url: str) -> str:
    """Return a service's address without the slash at its end. InputError unless it is https, or http to this machine,
    and nothing but host, port and path: an invitation would go to others, or could be read on the way.
    """
    try:
        parts = urlsplit(url)
        fine = parts.port != 0 and parts.scheme in SCHEMES and bool(parts.hostname)
    except ValueError:  # a port or an address that is none
        fine = False
    fine = fine and url.isprintable() and not ("@" in parts.netloc or parts.query or parts.fragment)
    if not fine or (parts.scheme == "http" and not is_this_machine(parts.hostname)):
        raise InputError(f"url={url:.80}: must be https, or this machine (http://127.0.0.1)")
    return url.rstrip("/")


def seen_beside(ledger: Path, witnesses: Path | None) -> SeenCheckpoints:
    """Open the checkpoints in the folder beside an owner's, or an aggregator's, ledger. InputError where the file of
    the witnesses (a tlog-policy) cannot be read.
    """
    policy = None if witnesses is None else read_witness_policy(witnesses)
    return SeenCheckpoints(ledger.with_name(f"{ledger.name}.checkpoints"), policy)


def read_pinned_keys(place: Place) -> PublicKeys:
    """Read the keys that are believed. KeyInvalid where they cannot be read."""
    try:
        return PublicKeys.from_json(place.trust.read_bytes())
    except OSError:
        raise KeyInvalid(f"trust={place.trust}: the pinned keys cannot be read") from None


def invited_number(invitation: str) -> int:
    """Return the number of the owner, or institution, whose invitation it is. InputError where it is no invitation."""
    parts = invitation.split("_")
    if len(parts) != 3 or parts[0] != "dpi" or not parts[1].isdecimal() or len(parts[1]) > 8:
        raise InputError("invitation: must be like dpi_17_0123abcd")
    return int(parts[1])


@dataclass(frozen=True)
class Verified:
    """A campaign that is signed by a pinned issuer and stands in the pinned log. `note`: the log's checkpoint."""

    definition: Question
    note: str

    @property
    def size(self) -> int:
        """Return how many entries the log has."""
        return notes.parse_checkpoint(self.note).size


def verify_offer(offer: dict[str, Any], trust: PublicKeys, name: str) -> Verified:
    """Return the definition, once issuer, log and entry agree on it; CertificateInvalid, LedgerInvalid, KeyInvalid
    else, whatever was sent.
    """
    with reading("campaign"):
        return _verify(offer, trust, name)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Read what a stranger sent: an error that no reader foresaw is CertificateInvalid as well."""
    try:
        yield
    except DpserveError:
        raise
    except Exception as error:
        raise CertificateInvalid(f"{what}: cannot be understood ({type(error).__name__})") from error


def fetch_campaign(place: Place, name: str, act: Callable[[dict[str, Any]], T]) -> T:
    """Ask for a campaign, with the proof that its ledger continues what was seen here, and `act` by the answer.

    Where `act` raises OtherHistory, and another process of the same owner has seen more meanwhile, it is asked again.
    """
    trust = read_pinned_keys(place)
    for _ in range(TRIES):
        before = place.seen.read(trust)
        query = {} if before is None else {"seen": str(before.head.size)}
        query |= {} if place.seen.witnesses is None else {"witnessed": "1"}
        path = f"/v1/campaigns/{quote(name, safe='')}" + (f"?{urlencode(query)}" if query else "")
        offer = ask(place, "GET", path)
        try:
            return act(offer)
        except OtherHistory:
            if place.seen.read(trust) == before:
                raise
    raise LedgerUnavailable(f"{place.url}: its ledger grew at each of {TRIES} tries; try again")


def believe_history(place: Place, offer: dict[str, Any], verified: Verified, trust: PublicKeys) -> None:
    """Keep the checkpoint of a verified offer, once it continues the last one seen here. OtherHistory, LedgerInvalid
    else: nothing of the campaign is to be believed.
    """
    place.seen.advance(verified.note, trust, read_growth(offer.get("consistency")))


def _verify(offer: dict[str, Any], trust: PublicKeys, name: str) -> Verified:
    envelope, text = offer.get("envelope"), offer.get("proof")
    if not (isinstance(envelope, str) and isinstance(text, str)):
        raise CertificateInvalid("campaign: came without an envelope and a proof")
    parsed = proofs.parse_proof(text)
    if parsed.extra is None:
        raise CertificateInvalid("proof: must carry the entry's bytes")
    payload = dsse.verify(envelope.encode(), trust.issuer_keys(parsed.index))
    entry = _entry_of_proof(text, trust)
    if (entry.get("type"), entry.get("definition")) != ("campaign-opened", hashlib.sha256(payload).hexdigest()):
        raise CertificateInvalid(f"entry {parsed.index}: does not open this campaign")
    definition = question_from_payload(payload)
    if definition.campaign != name:
        raise CertificateInvalid(f"campaign={definition.campaign}: is not the one that was asked for, {name}")
    return Verified(definition, parsed.checkpoint_note)


def _entry_of_proof(text: str, trust: PublicKeys) -> dict[str, Any]:
    """Return the entry that a proof shows to stand in the pinned log. LedgerInvalid, KeyInvalid else."""
    parsed = proofs.parse_proof(text)
    if parsed.extra is None:
        raise CertificateInvalid("proof: must carry the entry's bytes")
    size = notes.parse_checkpoint(parsed.checkpoint_note).size
    proofs.verify_proof(parsed, parsed.extra, trust.origin, trust.log_key_at(size))
    entry = decode_entry(parsed.extra)
    return entry if isinstance(entry, dict) else {}


def verify_turn(offer: dict[str, Any], trust: PublicKeys, definition: BoostedDefinition, owner: int) -> bytes:
    """Return what was published before this owner's turn, once the log shows that it is what the turn before has left.

    WrongState where another turn is being asked; CertificateInvalid, LedgerInvalid, KeyInvalid where it is not in the
    log, or not of this campaign and turn.
    """
    turn, due = definition.turn_of(owner), offer.get("turn")
    if due != turn:
        raise WrongState(
            f"campaign={definition.campaign}: is at turn {due!r:.20} of {definition.turns}, and yours is {turn}; "
            "nothing was drawn"
        )
    if turn == 1:
        return NOTHING
    document, text = offer.get("ensemble"), offer.get("ensemble_proof")
    if not (isinstance(document, str) and isinstance(text, str)):
        raise CertificateInvalid("campaign: came without what was learnt before your turn, and its proof")
    if proofs.parse_proof(text).checkpoint_note != proofs.parse_proof(str(offer.get("proof"))).checkpoint_note:
        raise CertificateInvalid("proof: must be of the checkpoint that the campaign's is of")
    with reading("proof"):
        entry = _entry_of_proof(text, trust)
    digest = hashlib.sha256(document.encode()).hexdigest()
    logged = [entry.get(name) for name in ("type", "definition", "round", "ensemble")]
    if logged != ["campaign-round", definition.digest, turn - 1, digest]:
        raise CertificateInvalid(f"campaign={definition.campaign}: the log does not say that turn {turn - 1} left this")
    return document.encode()


def verify_answers(offer: dict[str, Any], trust: PublicKeys, verified: Verified) -> dict[int, str]:
    """Return the sha256 in hex of each answer that the log holds for this campaign, by the aggregator's number from 0.

    CertificateInvalid, LedgerInvalid, KeyInvalid where what was sent is not in the log that the campaign was shown in.
    """
    digests = {}
    with reading("answers"):
        for text in offer.get("answer_proofs", []):
            entry = _entry_of_proof(text, trust)
            if proofs.parse_proof(text).checkpoint_note != verified.note:
                raise CertificateInvalid("proof: must be of the checkpoint that the campaign's is of")
            if (entry.get("type"), entry.get("definition")) != ("campaign-answered", verified.definition.digest):
                raise CertificateInvalid("answer: the log's entry is not of this campaign")
            digests[exact_integer(entry["aggregator"], "aggregator") - 1] = exact_text(entry["answer"], "answer")
    return digests


def ask(settings: Place, method: str, path: str, body: bytes | None = None, kind: str = JSON) -> dict[str, Any]:
    """Send one request; return the JSON object that came back. LedgerUnavailable where none did; else what the service
    refused.
    """
    try:
        if settings.carry is not None:
            reply = settings.carry(method, path, body or b"")
        else:
            reply = _ask_over_http(settings, method, path, body, kind)
    except LedgerUnavailable as error:
        raise LedgerUnavailable(f"{settings.url}: {error.message}; try again") from None
    try:
        answer = json.loads(reply.body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise LedgerUnavailable(f"{settings.url}: answered {reply.status} with what is no JSON object")
    if not 200 <= reply.status < 300:
        problem = answer.get("error", {})
        refused = problem.get("message", "no reason") if isinstance(problem, dict) else "no reason"
        kind_of_error = LedgerUnavailable if reply.status >= 500 else Refused
        raise kind_of_error(f"{settings.url}: refused with {reply.status}: {printable(str(refused)[:200])}")
    return answer


def _ask_over_http(settings: Place, method: str, path: str, body: bytes | None, kind: str) -> Reply:
    place, context = urlsplit(settings.url), None
    try:
        if place.scheme == "https":
            context = ssl.create_default_context(cafile=None if settings.ca is None else str(settings.ca))
    except OSError as error:
        raise InputError(f"ca={settings.ca}: cannot be read as certificates ({type(error).__name__})") from None
    return exchange(
        place, method, place.path + path, body, {"Content-Type": kind, "Connection": "close"}, SECONDS,
        MAX_ANSWER, context,
    )  # fmt: skip


class Refused(DpserveError):
    """The service did not take the report: for instance the campaign is closed. What was drawn stays charged."""

    code = "refused"
    exit_code = 2
    remedy = "the message has the service's reason; a report that was drawn is kept, and may be sent again"
