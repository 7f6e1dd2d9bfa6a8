"""An owner answers a campaign: fetch, verify, hold against the own policy, charge and draw once, send, tell.

Everything that could go wrong before the draw costs nothing; after it, the same bytes are sent again.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from accountant import shares
from accountant.canonical import decimal_string, encode
from accountant.errors import InputError
from models.features import encode_columns
from training.local.asking import (
    BYTES,
    JSON,
    Refused,
    ask,
    believe_history,
    fetch_campaign,
    pinned,
    verify_offer,
    verify_turn,
)
from training.local.boosted.definition import BoostedDefinition
from training.local.boosted.owned_scores import scores_in
from training.local.boosted.so_far import NOTHING, read_so_far
from training.local.definition import Definition
from training.local.directions import directions, scores
from training.local.question import Question
from training.local.shared import SharedDefinition
from training.local.statistics import own_vectors
from training.owner.own_ledger import OwnLedger, Sent
from training.owner.own_rows import labels, numbers, read_rows
from training.owner.settings import Settings

__all__ = ["Refused", "answer", "draw", "prepared", "said", "share", "told", "verify_offer", "words"]


def draw(definition: Definition | BoostedDefinition, owner: int, rows: Path, document: bytes = NOTHING) -> int:
    """One report of all of the owner's rows: the index of one of its vectors. Exactly epsilon-DP whatever the rows.

    Where owners are asked in turns, `document` is what was published before this one's.
    """
    columns, answers = read_rows(rows, definition.features, definition.target)
    codes, y = encode_columns(definition.features, columns), labels(answers, definition.classes)
    count, number, seed = np.array([len(answers)]), np.array([owner]), bytes.fromhex(definition.seed)
    if isinstance(definition, BoostedDefinition):
        turn, so_far = definition.turn_of(owner), read_so_far(document, definition.features, definition.classes)
        wanted = scores_in(definition, turn, codes, y, count, so_far, number)
        return int(definition.mechanism_in(turn).draw(wanted)[0])
    own = own_vectors(definition.learner, definition.coordinates.of(codes), y, count)
    vectors = directions(seed, number, definition.candidates, own.shape[1])
    return int(definition.mechanism.draw(scores(vectors, own))[0])


def share(definition: SharedDefinition, owner: int, rows: Path) -> bytes:
    """What all of the owner's rows come to, in two shares, each sealed to one aggregator: the first's, then the
    second's.

    Either share alone is uniform. Nothing is drawn that protects both together: that is the aggregators' noise.
    """
    columns, answers = read_rows(rows, definition.features, definition.target)
    codes = encode_columns(definition.features, columns)
    y = labels(answers, definition.classes) if definition.bounded is None else numbers(answers, definition.bounded)
    halves = shares.split(definition.layout.statistic(codes, y))
    return b"".join(
        shares.seal(shares.to_bytes(half), bytes.fromhex(whom.seal), definition.about(owner, at))
        for at, (half, whom) in enumerate(zip(halves, definition.aggregators, strict=True))
    )


def body_of(definition: Question, invitation: str, owner: int, rows: Path, document: bytes = NOTHING) -> bytes:
    """What is sent: drawn, or split, anew. To be stored before it is sent, and then never made again."""
    if isinstance(definition, SharedDefinition):
        return invitation.encode() + b"\n" + share(definition, owner, rows)
    assert isinstance(definition, Definition | BoostedDefinition)
    return encode({"invitation": invitation, "report": draw(definition, owner, rows, document)})


def answer(settings: Settings, name: str, invitation: str) -> Sent:
    """Answer the campaign `name`: at most one report is ever drawn, and what is sent is always the same.

    Raises:
        LedgerUnavailable: the service did not take it; do the same again, the same bytes are sent.
        What `prepared` raises.
    """
    _number(invitation)
    line = fetch_campaign(settings, name, lambda offer: prepared(settings, offer, name, invitation))
    what, kind = ("shares", BYTES) if line.delta else ("reports", JSON)
    ask(settings, "POST", f"/v1/campaigns/{quote(name, safe='')}/{what}", line.body, kind)
    ledger = OwnLedger(settings.ledger)
    ledger.confirm(name)
    return next(each for each in ledger.lines() if each.campaign == name)


def prepared(settings: Settings, offer: dict[str, Any], name: str, invitation: str) -> Sent:
    """The line of the ledger whose bytes answer this offer, however it came: verified, held against the policy, charged
    and drawn; or stored before.

    Raises:
        InputError: the campaign asks for what the policy or the rows do not allow; nothing was drawn.
        BudgetRefused: it asks for more epsilon than the policy gives, or is left; nothing was drawn.
        WrongState: owners are asked in turns, and it is not this one's; nothing was drawn.
        CertificateInvalid, LedgerInvalid, KeyInvalid: it is not signed, or not in the log; nothing was drawn.
        OtherHistory: the log does not continue what was seen here, or this name asked something else before; nothing
            was drawn.
    """
    number, trust = _number(invitation), pinned(settings)
    verified = verify_offer(offer, trust, name)
    definition, ledger = verified.definition, OwnLedger(settings.ledger)
    believe_history(settings, offer, verified, trust, ledger.size_seen(trust.origin))
    ledger.serve(trust.origin, definition)
    settings.policy.check(definition)
    if number >= definition.owners:
        raise InputError(f"invitation: is of owner {number}; the campaign has {definition.owners}")

    def published(asked: Question, owner: int) -> bytes:
        return verify_turn(offer, trust, asked, owner) if isinstance(asked, BoostedDefinition) else NOTHING

    return ledger.report(
        definition, settings.policy.total,
        lambda: body_of(definition, invitation, number, settings.rows, published(definition, number)),
        settings.policy.total_delta,
    )  # fmt: skip


def _number(invitation: str) -> int:
    """Whose it is. InputError where it is no invitation."""
    parts = invitation.split("_")
    if len(parts) != 3 or parts[0] != "dpi" or not parts[1].isdecimal() or len(parts[1]) > 8:
        raise InputError("invitation: must be like dpi_17_0123abcd")
    return int(parts[1])


def said(line: Sent) -> int | None:
    """What a report said: the place of one of the owner's vectors. None: it was two shares, of which each is noise."""
    return None if line.delta else int(json.loads(line.body)["report"])


def words(line: Sent) -> str:
    """What was sent and what it cost, in plain words."""
    if line.delta:
        return (
            f"You answered the campaign {line.campaign} with two shares of what your rows come to, sealed to one "
            "aggregator each: either alone is noise, and says nothing of your rows. If one of the two is honest, "
            "nobody sees more than sums over all owners with noise, and whatever is made of them is at most "
            f"e^{decimal_string(line.epsilon)} times as likely as without your contribution, but for a chance of "
            f"{decimal_string(line.delta)}; that you took part is no secret. It cost epsilon "
            f"{decimal_string(line.epsilon)} and delta {decimal_string(line.delta)} of your own budget, once; sent "
            f"{line.sent or 'not yet'}."
        )
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
        "spent_delta": decimal_string(sum((line.delta for line in lines), Decimal(0))),
        "total_delta": decimal_string(settings.policy.total_delta),
        "reports": [
            {
                "campaign": line.campaign,
                "learner": line.learner,
                "epsilon": decimal_string(line.epsilon),
                "delta": decimal_string(line.delta),
                "drawn": line.drawn,
                "sent": line.sent,
                "bytes": len(line.body),
                "definition": line.definition,
            }
            for line in lines
        ],
    }
