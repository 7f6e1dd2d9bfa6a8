"""An aggregator answers a campaign of institutions, round by round: open, add up, add the whole noise, once a round.

One process of it begins, by a word that the platform's log holds before the first sum, and answers every round. No
other process does, whatever folder it was started from: what an older copy has forgotten it would draw again. Where
that one ends before the last round, the campaign has no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import uuid4

import numpy as np

from accountant.errors import WrongState
from accountant.noise import shares
from accountant.noise.mechanisms import DiscreteGaussian
from accountant.noise.shares import Share
from dpserve_verify.errors import CertificateInvalid, InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats.canonical import decode_base64, encode
from dpserve_verify.privacy.events import Gaussian, Release
from local.aggregator import program
from local.aggregator.program import path_of, place, sign_payload, verify_history
from local.aggregator.settings import Settings
from local.aggregator.store import AggregatorStore, Line, check_restored
from local.campaign.asking import BYTES, ask, fetch_campaign, reading
from local.reports.sums import NoisySum, begin_payload, digest_payload, round_payload
from local.rounds.definition import RoundsDefinition

POLL = 0.02  # seconds between two looks for a round's shares
AWAY = 1.0  # seconds between two tries while the service is away
T = TypeVar("T")


def answer_campaign(settings: Settings, name: str, token: str, wait: float = 600.0) -> Line:
    """Answer a campaign as its definition asks: by one sum once it is closed (`program.answer`, whose errors it
    raises), or round by round.
    """
    definition, _ = fetch_campaign(settings, name, lambda offer: verify_history(settings, offer, name))
    if not isinstance(definition, RoundsDefinition):
        return program.answer(settings, name, token, wait)
    settings.policy.check(definition)
    return answer_rounds(settings, definition, token, wait)


def answer_rounds(settings: Settings, definition: RoundsDefinition, token: str, wait: float) -> Line:
    """Answer every round of a campaign. `wait`: seconds for the shares of one round.

    Raises:
        InputError: a sum would be of too few institutions. WrongState: another process of this aggregator has begun.
        LedgerInvalid: the log does not hold the word by which this one begins.
        LedgerUnavailable: the service is away, or no shares came within `wait` seconds: this campaign cannot be gone on
            with.
    """
    store, name = AggregatorStore(settings.ledger), definition.campaign
    at = place(settings, definition)
    _begin(settings, store, definition, at, token, wait)
    for turn, release in enumerate(definition.rounds):
        total, owners = _collect(settings, definition, at, turn, token, wait)
        answer = NoisySum(owners, total + draw(release, total.size).view(np.uint64))
        word = sign_payload(settings, round_payload(definition, at, turn, answer))
        body = f"{token}\n{turn}\n".encode() + word
        _stand_by(wait, partial(ask, settings, "POST", _door(name, "sum"), body, BYTES))  # the same bytes
    store.confirm(definition)
    return next(stored for stored in store.lines() if stored.name == name)


def draw(release: Release, numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Draw the whole noise of one release: as wide as the plan prices it."""
    assert isinstance(release.event, Gaussian)
    mechanism = DiscreteGaussian(release.event.noise_multiplier)
    if mechanism.event != release.event or (mechanism.name, mechanism.norm) != (release.mechanism, release.norm):
        raise WrongState("noise: is not what the campaign's plan is of")  # price and draw are one number
    noise = mechanism.draw(np.zeros(numbers, np.int64), release.sensitivity)
    return np.asarray(noise, np.int64)


def _begin(
    settings: Settings, store: AggregatorStore, definition: RoundsDefinition, at: int, token: str, wait: float
) -> None:
    """Enter in the log that this process answers. WrongState where another one has begun, whether that is known here,
    or beside the ledger, or in the log alone.
    """
    name = definition.campaign
    if store.begin(definition).answer is not None:
        raise WrongState(
            f"campaign={name}: another process of yours has begun with it; it answers to the end, or nobody does: what "
            "it has drawn would be drawn again"
        )
    _, logged = fetch_campaign(settings, name, lambda offer: verify_history(settings, offer, name))
    check_restored(definition, store.mark(definition), logged.get(at))
    word = store.begin_rounds(definition, sign_payload(settings, begin_payload(definition, at, uuid4().hex)))
    digest = store.mark(definition)
    body = sign_payload(settings, digest_payload(definition, at, word))
    _stand_by(wait, lambda: ask(settings, "POST", _door(name, "begin"), token.encode() + b"\n" + body, BYTES))
    _, logged = _stand_by(
        wait, lambda: fetch_campaign(settings, name, lambda offer: verify_history(settings, offer, name))
    )
    if at not in logged:
        raise LedgerInvalid(f"campaign={name}: the log does not hold the word by which you begin; nothing was drawn")
    check_restored(definition, digest, logged[at])


def _collect(
    settings: Settings, definition: RoundsDefinition, at: int, turn: int, token: str, wait: float
) -> tuple[Share, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Fetch the shares of a round once it is closed, and add up those that open; and whose they are."""
    body, until = encode({"token": token, "round": turn}), time.monotonic() + wait
    while True:
        found = _stand_by(wait, lambda: ask(settings, "POST", _door(definition.campaign, "collect"), body))["shares"]
        if found is not None:
            break
        if time.monotonic() > until:
            raise LedgerUnavailable(
                f"campaign={definition.campaign}: no shares of round {turn + 1} within {wait:.0f} s"
            )
        time.sleep(POLL)
    with reading("shares"):
        parts = [(int(part["owner"]), decode_base64(str(part["sealed"]))) for part in found]
    opened = _open(settings, definition, at, turn, parts)
    least = max(definition.least, settings.policy.least_owners)
    if len(opened) < least:
        raise InputError(
            f"campaign={definition.campaign}: shares of {len(opened)} institutions opened; at least {least}"
        )
    total, owners = np.zeros(definition.numbers_of(turn), np.uint64), np.zeros(definition.owners, bool)
    for owner, share in opened:
        total += share
        owners[owner] = True
    return total, owners


def _open(
    settings: Settings, definition: RoundsDefinition, at: int, turn: int, parts: Sequence[tuple[int, bytes]]
) -> list[tuple[int, Share]]:
    """Open shares of this campaign, round and key. CertificateInvalid where an institution comes twice: its rows would
    count twice.
    """
    opened, last = [], -1
    for owner, sealed in parts:
        if not last < owner < definition.owners:
            raise CertificateInvalid(f"institution {owner}: shares must come in order, each institution's once")
        last = owner
        try:
            text = shares.unseal(sealed, settings.seal, definition.about(turn, owner, at))
        except InputError:
            continue
        if len(text) == 8 * definition.numbers_of(turn):
            opened.append((owner, shares.from_bytes(text)))
    return opened


def _door(name: str, what: str) -> str:
    return f"{path_of(name)}/rounds/{what}"


def _stand_by(wait: float, act: Callable[[], T]) -> T:
    """Do what asks the service, again while it is away: of a process that has begun no other can take the place.
    LedgerUnavailable after `wait` seconds.
    """
    until = time.monotonic() + wait
    while True:
        try:
            return act()
        except LedgerUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(AWAY)
