"""An owner answers a campaign: fetch, verify, hold against the own policy, charge and draw once, send, tell.

Everything that could go wrong before the draw costs nothing; after it, the same bytes are sent again.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from accountant.canonical import decimal_string, encode
from accountant.canonical_bytes import decode_entry
from accountant.errors import CertificateInvalid, DpserveError, InputError, KeyInvalid, LedgerUnavailable
from accountant.keys import dsse
from accountant.keys.trust import PublicKeys
from accountant.log import notes, proofs
from models.features import encode_columns
from training.local.definition import Definition, definition_from_payload
from training.local.directions import directions, scores
from training.local.statistics import own_vectors
from training.owner.own_ledger import OwnLedger, Sent
from training.owner.own_rows import read_rows, signs
from training.owner.settings import Settings

MOST_ANSWER = 1 << 21
SECONDS = 20.0


@dataclass(frozen=True)
class Verified:
    """A campaign that is signed by a pinned issuer and stands in the pinned log. `size`: of that log."""

    definition: Definition
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
    size = notes.parse_checkpoint(parsed.checkpoint_note).size
    proofs.verify_proof(parsed, parsed.extra, trust.origin, trust.log_key_at(size))
    entry = decode_entry(parsed.extra)
    said = (entry.get("type"), entry.get("definition")) if isinstance(entry, dict) else None
    if said != ("campaign-opened", hashlib.sha256(payload).hexdigest()):
        raise CertificateInvalid(f"entry {parsed.index}: does not open this campaign")
    definition = definition_from_payload(payload)
    if definition.campaign != name:
        raise CertificateInvalid(f"campaign={definition.campaign}: is not the one that was asked for, {name}")
    return Verified(definition, size)


def draw(definition: Definition, owner: int, rows: Path) -> int:
    """One report of all of the owner's rows: the index of one of its vectors. Exactly epsilon-DP whatever the rows."""
    columns, answers = read_rows(rows, definition.features, definition.target)
    z = definition.coordinates.of(encode_columns(definition.features, columns))
    own = own_vectors(definition.learner, z, signs(answers, definition.classes), np.array([len(answers)]))
    seed = bytes.fromhex(definition.seed)
    vectors = directions(seed, np.array([owner]), definition.candidates, definition.dimension)
    return int(definition.mechanism.draw(scores(vectors, own))[0])


def answer(settings: Settings, name: str, invitation: str) -> Sent:
    """Answer the campaign `name`: at most one report is ever drawn, and what is sent is always the same.

    Raises:
        InputError: the campaign asks for what the policy or the rows do not allow; nothing was drawn.
        BudgetRefused: it asks for more epsilon than the policy gives, or is left; nothing was drawn.
        CertificateInvalid, LedgerInvalid, KeyInvalid: it is not signed, or not in the log; nothing was drawn.
        LedgerUnavailable: the service did not take it; do the same again, the same bytes are sent.
    """
    parts = invitation.split("_")
    if len(parts) != 3 or parts[0] != "dpi" or not parts[1].isdecimal() or len(parts[1]) > 8:
        raise InputError("invitation: must be like dpi_17_0123abcd")
    number = int(parts[1])
    try:
        trust = PublicKeys.from_json(settings.trust.read_bytes())
    except OSError:
        raise KeyInvalid(f"trust={settings.trust}: the pinned keys cannot be read") from None
    verified = verify_offer(ask(settings, "GET", f"/v1/campaigns/{quote(name, safe='')}"), trust, name)
    definition, ledger = verified.definition, OwnLedger(settings.ledger)
    ledger.see(trust.origin, verified.size)
    settings.policy.check(definition)
    if number >= definition.owners:
        raise InputError(f"invitation: is of owner {number}; the campaign has {definition.owners}")

    def body() -> bytes:
        return encode({"invitation": invitation, "report": draw(definition, number, settings.rows)})

    line = ledger.report(definition, settings.policy.total, body)
    ask(settings, "POST", f"/v1/campaigns/{quote(name, safe='')}/reports", line.body)
    ledger.confirm(name)
    return next(each for each in ledger.lines() if each.campaign == name)


def ask(settings: Settings, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
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
        connection.request(method, place.path + path, body, {"Content-Type": "application/json"})
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
        kind = LedgerUnavailable if response.status >= 500 else Refused
        raise kind(f"{settings.url}: refused with {response.status}: {refused!s:.200}")
    return found


class Refused(DpserveError):
    """The service did not take the report: for instance the campaign is closed. What was drawn stays charged."""

    code = "refused"
    exit_code = 2


def said(line: Sent) -> int:
    """What a report said: the place of one of the owner's vectors."""
    return int(json.loads(line.body)["report"])


def words(line: Sent) -> str:
    """What was sent and what it cost, in plain words."""
    return (
        f"You answered the campaign {line.campaign} with the number {said(line)}, drawn at random: whatever your rows "
        f"say, no number is more than e^{decimal_string(line.epsilon)} times as likely as with any other rows. It cost "
        f"epsilon {decimal_string(line.epsilon)} of your own budget, once; sent {line.sent or 'not yet'}."
    )


def told(settings: Settings) -> dict[str, Any]:
    """What was sent and what it cost, for the owner."""
    lines = OwnLedger(settings.ledger).lines()
    spent = sum(line.epsilon for line in lines)
    return {
        "spent": str(spent),
        "total": decimal_string(settings.policy.total),
        "reports": [
            {
                "campaign": line.campaign,
                "learner": line.learner,
                "epsilon": decimal_string(line.epsilon),
                "drawn": line.drawn,
                "sent": line.sent,
                "bytes": len(line.body),
                "definition": line.definition,
            }
            for line in lines
        ],
    }
