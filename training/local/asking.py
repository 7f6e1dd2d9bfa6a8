"""Asking the service of a campaign: over HTTPS, and believing what a pinned key has signed and the pinned log holds."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from accountant.canonical_bytes import decode_entry
from accountant.errors import CertificateInvalid, DpserveError, KeyInvalid, LedgerUnavailable, WrongState
from accountant.keys import dsse
from accountant.keys.trust import PublicKeys
from accountant.log import notes, proofs
from training.local.boosted.definition import BoostedDefinition
from training.local.boosted.so_far import NOTHING
from training.local.question import Question
from training.local.questions import question_from_payload

MOST_ANSWER = 1 << 21
SECONDS = 20.0
JSON, BYTES = "application/json", "application/octet-stream"


class Place(Protocol):
    """Where the service is: its address, the certificates that may speak for it, and the pinned keys of who asks."""

    @property
    def url(self) -> str:
        """https, or this machine."""

    @property
    def ca(self) -> Path | None:
        """None: the system's."""

    @property
    def trust(self) -> Path:
        """A file of `PublicKeys`."""


def pinned(place: Place) -> PublicKeys:
    """The keys that are believed. KeyInvalid where they cannot be read."""
    try:
        return PublicKeys.from_json(place.trust.read_bytes())
    except OSError:
        raise KeyInvalid(f"trust={place.trust}: the pinned keys cannot be read") from None


@dataclass(frozen=True)
class Verified:
    """A campaign that is signed by a pinned issuer and stands in the pinned log. `size`: of that log."""

    definition: Question
    size: int


def verify_offer(offer: dict[str, Any], trust: PublicKeys, name: str) -> Verified:
    """The definition, once issuer, log and entry agree on it; CertificateInvalid, LedgerInvalid, KeyInvalid else."""
    envelope, text = offer.get("envelope"), offer.get("proof")
    if not (isinstance(envelope, str) and isinstance(text, str)):
        raise CertificateInvalid("campaign: came without an envelope and a proof")
    parsed = proofs.parse_proof(text)
    if parsed.extra is None:
        raise CertificateInvalid("proof: must carry the entry's bytes")
    payload = dsse.verify(envelope.encode(), trust.issuer_keys(parsed.index))
    entry, size = _entry(text, trust)
    if (entry.get("type"), entry.get("definition")) != ("campaign-opened", hashlib.sha256(payload).hexdigest()):
        raise CertificateInvalid(f"entry {parsed.index}: does not open this campaign")
    definition = question_from_payload(payload)
    if definition.campaign != name:
        raise CertificateInvalid(f"campaign={definition.campaign}: is not the one that was asked for, {name}")
    return Verified(definition, size)


def _entry(text: str, trust: PublicKeys) -> tuple[dict[str, Any], int]:
    """The entry that a proof shows to stand in the pinned log, and the log's size. LedgerInvalid, KeyInvalid else."""
    parsed = proofs.parse_proof(text)
    if parsed.extra is None:
        raise CertificateInvalid("proof: must carry the entry's bytes")
    size = notes.parse_checkpoint(parsed.checkpoint_note).size
    proofs.verify_proof(parsed, parsed.extra, trust.origin, trust.log_key_at(size))
    entry = decode_entry(parsed.extra)
    return (entry if isinstance(entry, dict) else {}), size


def verify_turn(offer: dict[str, Any], trust: PublicKeys, definition: BoostedDefinition, owner: int) -> bytes:
    """What was published before this owner's turn, once the log shows that it is what the turn before has left.

    WrongState where another turn is being asked; CertificateInvalid, LedgerInvalid, KeyInvalid where it is not in the
    log, or not of this campaign and turn.
    """
    turn, asked = definition.turn_of(owner), offer.get("turn")
    if asked != turn:
        raise WrongState(
            f"campaign={definition.campaign}: is at turn {asked!r:.20} of {definition.turns}, and yours is {turn}; "
            "nothing was drawn"
        )
    if turn == 1:
        return NOTHING
    document, text = offer.get("ensemble"), offer.get("ensemble_proof")
    if not (isinstance(document, str) and isinstance(text, str)):
        raise CertificateInvalid("campaign: came without what was learnt before your turn, and its proof")
    entry, _ = _entry(text, trust)
    found = hashlib.sha256(document.encode()).hexdigest()
    said = [entry.get(name) for name in ("type", "definition", "round", "ensemble")]
    if said != ["campaign-round", definition.digest, turn - 1, found]:
        raise CertificateInvalid(f"campaign={definition.campaign}: the log does not say that turn {turn - 1} left this")
    return document.encode()


def ask(settings: Place, method: str, path: str, body: bytes | None = None, kind: str = JSON) -> dict[str, Any]:
    """One request; the JSON object that came back. LedgerUnavailable where none did; else what the service refused."""
    place = urlsplit(settings.url)
    host, port = place.hostname or "", place.port
    connection: http.client.HTTPConnection
    if place.scheme == "https":
        context = ssl.create_default_context(cafile=None if settings.ca is None else str(settings.ca))
        connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request(method, place.path + path, body, {"Content-Type": kind})
        response = connection.getresponse()
        raw = response.read(MOST_ANSWER + 1)
        found = json.loads(raw) if len(raw) <= MOST_ANSWER else None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LedgerUnavailable(f"{settings.url}: no answer ({type(error).__name__}); try again") from None
    finally:
        connection.close()
    if not isinstance(found, dict):
        raise LedgerUnavailable(f"{settings.url}: answered {response.status} with what is no JSON object")
    if response.status >= 400:
        said = found.get("error", {})
        refused = said.get("message", "no reason") if isinstance(said, dict) else "no reason"
        what = LedgerUnavailable if response.status >= 500 else Refused
        raise what(f"{settings.url}: refused with {response.status}: {refused!s:.200}")
    return found


class Refused(DpserveError):
    """The service did not take the report: for instance the campaign is closed. What was drawn stays charged."""

    code = "refused"
    exit_code = 2
    remedy = "the message has the service's reason; a report that was drawn is kept, and may be sent again"
