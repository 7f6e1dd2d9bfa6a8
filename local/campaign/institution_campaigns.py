"""A campaign of institutions at the platform: round by round sealed shares come in, each aggregator fetches its own,
and the sum of their two noisy answers goes back to the institutions.

The platform can open no share. Which institutions are in a round it decides: the promise is to every unit of each of
them, whoever else is in the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger import campaigns
from accountant.noise import shares
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats.canonical import encode_base64
from local.campaign.campaign_kinds import OfInstitutions
from local.campaign.campaigns import Campaign, invited_owner
from local.campaign.shared_campaigns import aggregator_with
from local.reports.shared import AGGREGATORS
from local.reports.sums import read_digest, read_round_sum
from local.rounds.store import RoundStore

ANSWERS = 64  # in one page
LINE = 80  # bytes of an invitation or a token, at most


def receive_round(home: Home, name: str, body: bytes) -> dict[str, Any]:
    """Take in an institution's two sealed shares of a round: the invitation, the round, a line's end after each, the
    first's, the second's. Return the noisy sum of the round, once it is there.

    NotInvited for a stranger, WrongState where the campaign is not open or the round has not come, InputError where
    there are not two shares, each of the length that the campaign's have.
    """
    invited, _, rest = body.partition(b"\n")
    number, _, sealed = rest.partition(b"\n")
    campaign, owner = invited_owner(home, name, invited[:LINE].decode("ascii", "replace"))
    kind, turn = _kind(campaign), _round(number)
    _require_open(home, campaign)
    if turn >= len(kind.definition.rounds):
        raise InputError(f"round={turn}: the campaign has {len(kind.definition.rounds)}")
    if len(sealed) != AGGREGATORS * (size := kind.definition.share_bytes(turn)):
        raise InputError(f"shares: {len(sealed)} bytes; must be two of {size}")
    if turn == 0:
        kind.reports.add(owner, 0)
    total = kind.rounds.add(turn, owner, sealed)
    return {"round": turn, "answer": None if total is None else encode_base64(total)}


def read_answers(home: Home, name: str, invited: str, after: int) -> dict[str, Any]:
    """Return the noisy sums of the rounds beyond `after`, some of them, in order. NotInvited for a stranger."""
    campaign, _ = invited_owner(home, name, invited)
    return {"answers": [encode_base64(total) for total in _kind(campaign).rounds.answers(after, ANSWERS)]}


def begin(home: Home, name: str, body: bytes) -> dict[str, Any]:
    """Enter in the log the word by which an aggregator begins: its token, a line's end, the signed envelope. One
    process of each aggregator begins, and answers every round.

    NotInvited for a stranger, CertificateInvalid where it is not signed by the pinned key, IdempotencyConflict where
    another process of this aggregator has begun, WrongState where the campaign is not open.
    """
    shown, _, envelope = body.partition(b"\n")
    campaign, at = aggregator_with(home, name, shown[:LINE].decode("ascii", "replace"))
    kind = _kind(campaign)
    digest = read_digest(kind.definition, at, envelope)
    campaigns.enter_answer(home.ledger, campaign.job, kind.definition.digest, at + 1, digest)
    return {"campaign": name}


def collect_round(home: Home, name: str, shown: str, turn: int) -> dict[str, Any]:
    """Return an aggregator's sealed shares of a round, once it is closed; None before. NotInvited for a stranger."""
    campaign, at = aggregator_with(home, name, shown)
    kind = _kind(campaign)
    _require_open(home, campaign)
    if turn >= len(kind.definition.rounds) or (parts := kind.rounds.parts(turn)) is None:
        return {"shares": None}
    size = kind.definition.share_bytes(turn)
    part = slice(at * size, (at + 1) * size)
    return {"shares": [{"owner": owner, "sealed": encode_base64(sealed[part])} for owner, sealed in parts]}


def say_sum(home: Home, name: str, body: bytes) -> dict[str, Any]:
    """Take in an aggregator's noisy sum of a round: its token, the round, a line's end after each, the signed envelope.
    Where both are there they are added up, and the round is over.

    NotInvited for a stranger, CertificateInvalid where it is not signed by the pinned key, or of other institutions
    than the round's; IdempotencyConflict where it said something else before.
    """
    shown, _, rest = body.partition(b"\n")
    number, _, envelope = rest.partition(b"\n")
    campaign, at = aggregator_with(home, name, shown[:LINE].decode("ascii", "replace"))
    kind, turn = _kind(campaign), _round(number)
    _require_open(home, campaign)
    if at + 1 not in kind.begun():
        raise WrongState(f"campaign={name}: aggregator {at + 1} has not begun")
    if turn >= len(kind.definition.rounds):
        raise InputError(f"round={turn}: the campaign has {len(kind.definition.rounds)}")
    read_round_sum(kind.definition, at, turn, kind.definition.numbers_of(turn), envelope)
    words = kind.rounds.say(turn, at, envelope)
    if words is not None:
        _add_up(kind, kind.rounds, turn, words)
    return {"round": turn}


def _add_up(kind: OfInstitutions, rounds: RoundStore, turn: int, words: list[bytes]) -> None:
    asked = kind.definition
    first, second = (read_round_sum(asked, at, turn, asked.numbers_of(turn), word) for at, word in enumerate(words))
    if not np.array_equal(first.owners, second.owners):
        raise CertificateInvalid(f"round {turn}: the two aggregators speak of different institutions")
    total = shares.join(first.share, second.share)
    rounds.answer(turn, shares.to_bytes(total.view(np.uint64)))
    if turn + 1 == len(asked.rounds):
        rounds.end()


def _kind(campaign: Campaign) -> OfInstitutions:
    if not isinstance(campaign.kind, OfInstitutions):
        raise InputError(f"campaign={campaign.definition.campaign}: is not of institutions")
    return campaign.kind


def _require_open(home: Home, campaign: Campaign) -> None:
    name = campaign.definition.campaign
    if campaigns.entry_of(home.ledger, campaign.job, campaigns.CLOSED) is not None:
        raise WrongState(f"campaign={name}: is closed; no share counts any more")
    if home.ledger.job(campaign.job).state.value != "started":
        raise WrongState(f"campaign={name}: is over; nothing is learnt from it any more")


def _round(text: bytes) -> int:
    if not text.isdigit() or len(text) > 6:
        raise InputError("round: must be a whole number")
    return int(text)
