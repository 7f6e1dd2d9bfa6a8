"""An owner answers a campaign: read the own rows, fetch, verify, hold against the own policy, draw once, send.

A campaign is refused by what is public alone, before a row has a part in it. Once it is accepted a report is always
drawn, charged and sent, at a moment that the settings decide: that an owner answers says nothing about its rows.
"""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from local.campaign.asking import (
    BYTES,
    JSON,
    Refused,
    ask,
    believe_history,
    fetch_campaign,
    invited_number,
    read_pinned_keys,
    verify_offer,
    verify_turn,
)
from local.owner.own_ledger import OwnLedger, Sent
from local.owner.own_rows import OwnTable, open_table
from local.owner.reports import body_of, read_task
from local.owner.settings import Settings
from local.turns.definition import BoostedDefinition
from local.turns.so_far import NOTHING

__all__ = ["Refused", "answer", "number_of_report", "prepare", "summarize", "verify_offer", "words"]


def answer(settings: Settings, name: str, invitation: str) -> Sent:
    """Answer the campaign `name`: at most one report is ever drawn, and what is sent is always the same.

    Raises:
        LedgerUnavailable: the service did not take it; do the same again, the same bytes are sent.
        What `prepared` raises.
    """
    invited_number(invitation)
    table = own_table(settings, name)
    line = fetch_campaign(settings, name, lambda offer: prepare(settings, offer, name, invitation, table))
    door, kind = ("shares", BYTES) if line.delta else ("reports", JSON)
    ask(settings, "POST", f"/v1/campaigns/{quote(name, safe='')}/{door}", line.body, kind)
    ledger = OwnLedger(settings.ledger)
    ledger.confirm(name)
    return next(report for report in ledger.lines() if report.campaign == name)


def own_table(settings: Settings, name: str) -> OwnTable | None:
    """Read the owner's rows before the campaign is looked at; None where it was answered before. InputError where the
    file cannot be opened: nobody was asked, and nobody was told.
    """
    answered = any(line.campaign == name for line in OwnLedger(settings.ledger).lines())
    return None if answered else open_table(settings.rows)


def prepare(
    settings: Settings, offer: dict[str, Any], name: str, invitation: str, table: OwnTable | None = None
) -> Sent:
    """Prepare the line of the ledger whose bytes answer this offer, however it came: verified, held against the policy,
    charged and drawn; or stored before. It returns a whole number of `settings.pace` seconds after it began.

    Nothing that it raises follows from what the rows say: they are looked at where nothing can be refused any more.

    Args:
        table: the owner's rows, if they were read before.

    Raises:
        InputError: the campaign asks for what the policy does not allow, or the file of rows cannot be opened; nothing
        was drawn.
        BudgetRefused: it asks for more epsilon than the policy gives, or is left; nothing was drawn.
        WrongState: owners are asked in turns, and it is not this one's; nothing was drawn.
        CertificateInvalid, LedgerInvalid, KeyInvalid: it is not signed, or not in the log; nothing was drawn.
        OtherHistory: the log does not continue what was seen here, or this name asked something else before; nothing
            was drawn.
    """
    began = time.monotonic()
    number, trust = invited_number(invitation), read_pinned_keys(settings)
    rows = table or own_table(settings, name) or OwnTable({}, 0)
    verified = verify_offer(offer, trust, name)
    definition, ledger = verified.definition, OwnLedger(settings.ledger)
    believe_history(settings, offer, verified, trust)
    ledger.serve(trust.origin, definition)
    settings.policy.check(definition)
    if number >= definition.owners:
        raise InputError(f"invitation: is of owner {number}; the campaign has {definition.owners}")

    def draw_body() -> bytes:
        published = NOTHING
        if isinstance(definition, BoostedDefinition):
            published = verify_turn(offer, trust, definition, number)
        return body_of(read_task(definition, number, published), invitation, rows)

    line = ledger.report(definition, settings.policy.total_epsilon, draw_body, settings.policy.total_delta)
    time.sleep(-(time.monotonic() - began) % settings.pace)  # how long rows took is not to be seen
    return line


def number_of_report(line: Sent) -> int | None:
    """Return what a report said: the place of one of the owner's vectors. None: it was two shares, of which each is
    noise.
    """
    return None if line.delta else int(json.loads(line.body)["report"])


def words(line: Sent) -> str:
    """Say what was sent and what it cost, in plain words."""
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
        f"You answered the campaign {line.campaign} with the number {number_of_report(line)}, drawn at random: "
        "whatever your rows say, no number is more than "
        f"e^{decimal_string(line.epsilon)} times as likely as with any other rows. It cost epsilon "
        f"{decimal_string(line.epsilon)} of your own budget, once; sent {line.sent or 'not yet'}."
    )


def summarize(settings: Settings) -> dict[str, Any]:
    """Return what was sent and what it cost, for the owner."""
    lines = OwnLedger(settings.ledger).lines()
    spent = sum(line.epsilon for line in lines)
    return {
        "spent": str(spent),
        "total": decimal_string(settings.policy.total_epsilon),
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
