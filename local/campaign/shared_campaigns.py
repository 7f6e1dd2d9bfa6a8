"""A campaign of shares at the platform: sealed shares come in, each aggregator fetches its own, and says what it found.

The platform can open none of them: it keeps two sealed texts of each owner, and hands each to whom it is for.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from accountant.errors import NotInvited, WrongState
from accountant.home import Home
from accountant.ledger import campaigns
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import encode_base64
from local.campaign.campaigns import Campaign, invited_owner, load
from local.reports.shared import AGGREGATORS, ForAggregators, SharedDefinition
from local.reports.sums import DIGEST, HELD, SUM, read_digest, read_held, read_sum

PREFIX = "dpa"
PAGE = 1 << 20  # bytes of sealed shares in one answer


def token_for(home: Home, name: str, aggregator: int) -> str:
    """Return what lets one aggregator fetch its shares and answer: `dpa_<1 or 2>_<mac>`. For that aggregator alone."""
    mac = home.keys.commitment([b"aggregator", name.encode(), str(aggregator).encode()])
    return f"{PREFIX}_{aggregator + 1}_{mac[:40]}"


def owner_of(home: Home, name: str, invited: str) -> str:
    """Return the name of the owner whose invitation it is, among all who ask. Raises as `invited_owner`."""
    return f"{name}:owner:{invited_owner(home, name, invited)[1]}"


def aggregator_of(home: Home, name: str, shown: str) -> str:
    """Return the name of the aggregator whose token it is, among all who ask. NotInvited for a stranger."""
    return f"{name}:aggregator:{aggregator_with(home, name, shown)[1] + 1}"


def receive_shares(home: Home, name: str, body: bytes) -> dict[str, Any]:
    """Take in an owner's two sealed shares: the invitation, a line's end, the first's, the second's. The same again
    changes nothing and is answered alike.

    NotInvited for a stranger, IdempotencyConflict for other shares of the same owner, WrongState where it is not open,
    InputError where there are not two, each of the length that the campaign's have.
    """
    invited, _, sealed = body.partition(b"\n")
    campaign, owner = invited_owner(home, name, invited[:80].decode("ascii", "replace"))
    wanted = AGGREGATORS * _definition(campaign).share_bytes
    if len(sealed) != wanted:
        raise InputError(
            f"shares: {len(sealed)} bytes; must be two of {wanted // AGGREGATORS}, one for each aggregator"
        )
    campaign.reports.add(owner, sealed)
    return {"campaign": name, "owner": owner}


def collect(home: Home, name: str, shown: str, after: int) -> dict[str, Any]:
    """Return an aggregator's next sealed shares, of owners beyond `after`; once the campaign is closed. NotInvited for
    a stranger.
    """
    campaign, at = aggregator_with(home, name, shown)
    _definition(campaign)
    if not -1 <= after < campaign.definition.owners:
        raise InputError("after: must be an owner's number, or -1 for the first page")
    if not campaign.reports.is_closed():
        raise WrongState(f"campaign={name}: is open; shares are handed out once it is closed")
    size = _definition(campaign).share_bytes
    reports = campaign.reports.after(after, AGGREGATORS * PAGE)
    part = slice(at * size, (at + 1) * size)
    return {"shares": [{"owner": owner, "sealed": encode_base64(value[part])} for owner, value in reports]}


def say(home: Home, name: str, what: str, body: bytes) -> dict[str, Any]:
    """Take in what an aggregator says: its token, a line's end, the signed envelope; `what` is HELD, DIGEST or SUM. The
    same again is answered alike: with what the other has said of whose shares opened, once it has. A digest is entered
    in the log, and a sum is taken once its own is there.

    NotInvited for a stranger, CertificateInvalid where it is not signed by the pinned key or not about this campaign,
    IdempotencyConflict where it said something else before, WrongState where the campaign is open, or over.
    """
    shown, _, envelope = body.partition(b"\n")
    campaign, at = aggregator_with(home, name, shown[:80].decode("ascii", "replace"))
    definition = _definition(campaign)
    read = {HELD: read_held, DIGEST: read_digest, SUM: read_sum}[what]
    content = read(definition, at, envelope)
    if what == SUM and envelope not in campaign.reports.said(SUM).values():
        entered = campaign.reports.said(DIGEST).get(at)
        if entered is None or read_digest(definition, at, entered) != hashlib.sha256(envelope).hexdigest():
            raise WrongState(f"campaign={name}: the digest of this answer was not entered in the log before")
    if envelope != campaign.reports.said(what).get(at) and home.ledger.job(campaign.job).state.value != "started":
        raise WrongState(f"campaign={name}: is over; nothing is learnt from it any more")
    campaign.reports.say(at, what, envelope)
    if what == DIGEST:
        campaigns.enter_answer(home.ledger, campaign.job, definition.digest, at + 1, str(content))
    other_envelope = campaign.reports.said(HELD).get(1 - at)
    return {"campaign": name, "other": None if other_envelope is None else other_envelope.decode("ascii")}


def _definition(campaign: Campaign) -> SharedDefinition:
    if not isinstance(campaign.definition, SharedDefinition):
        raise InputError(f"campaign={campaign.definition.campaign}: does not ask for one share of each owner")
    return campaign.definition


def aggregator_with(home: Home, name: str, shown: str) -> tuple[Campaign, int]:
    """Return the campaign, and which of its aggregators, 0 or 1, has this token. NotInvited for a stranger; InputError
    where the campaign has no aggregators.
    """
    campaign = load(home, name)
    if not isinstance(campaign.definition, ForAggregators):
        raise InputError(f"campaign={name}: asks for reports, and has no aggregators")
    for at in range(AGGREGATORS):
        if hmac.compare_digest(token_for(home, name, at).encode(), shown.encode()):
            return campaign, at
    raise NotInvited(f"campaign={name}: this token is not of one of its aggregators", campaign=name)
