"""An aggregator answers a closed campaign: verify, fetch, open, agree on the owners, add the whole noise, answer once.

The noise is as wide as the claim needs, whatever the other does: if this one is honest, no owner needs the other to be.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import numpy as np

from accountant.errors import WrongState
from accountant.keys.private_keys import SigningKey
from accountant.noise import shares
from accountant.noise.mechanisms import DiscreteGaussian
from accountant.noise.shares import Share
from dpserve_verify.errors import InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats.canonical import decode_base64, encode
from dpserve_verify.keys import dsse
from local.aggregator.settings import Settings
from local.aggregator.store import AggregatorStore, Line, Owners, check_restored
from local.campaign.asking import (
    BYTES,
    ask,
    believe_history,
    fetch_campaign,
    read_pinned_keys,
    reading,
    verify_answers,
    verify_offer,
)
from local.reports.question import Question
from local.reports.shared import ForAggregators, SharedDefinition
from local.reports.sums import DIGEST, HELD, SUM, NoisySum, digest_payload, held_payload, read_held, sum_payload

POLL = 0.3  # seconds between two looks for the other's word


def answer(settings: Settings, name: str, token: str, wait: float = 600.0) -> Line:
    """Answer the closed campaign `name`: at most one noisy sum ever leaves, and what is sent is always the same.

    Raises:
        InputError: the campaign is not for this aggregator, or its sum may be, or is, of too few owners. BudgetRefused:
        its noise would be less than the policy asks for. CertificateInvalid, LedgerInvalid, KeyInvalid: it is not
        signed, or not in the log; or the other's word is not. LedgerUnavailable: the service is away, or the other
        aggregator has not spoken within `wait` seconds; do the same again. WrongState: it was answered before, with
        what this ledger does not hold, for it was restored from a backup.
    """
    definition, logged = fetch_campaign(settings, name, lambda offer: verify_history(settings, offer, name))
    if not isinstance(definition, SharedDefinition):
        raise InputError(f"campaign={name}: is not answered by one sum of shares")
    settings.policy.check(definition)
    at = place(settings, definition)
    store = AggregatorStore(settings.ledger)
    line = store.begin(definition)
    check_restored(definition, store.mark(definition), logged.get(at))
    if line.answer is None:
        if line.held is None:
            collect(settings, store, definition, at, token)
        owners = store.owners(definition)
        word = store.hold(definition, lambda: sign_payload(settings, held_payload(definition, at, owners)))
        owners = read_held(definition, at, word)  # what was said before a crash holds
        both = owners & agree_on_owners(settings, definition, at, token, word, wait)
        if both.sum() < definition.least:
            raise InputError(f"campaign={name}: both hold shares of {both.sum()} owners; it wants {definition.least}")
        store.answer(definition, both, lambda total: sign_payload(settings, noisy(definition, at, both, total)))
    digest, body = store.mark(definition), next(stored.answer for stored in store.lines() if stored.name == name) or b""
    if at not in logged:
        tell_other(settings, name, DIGEST, token, sign_payload(settings, digest_payload(definition, at, body)))
        _, logged = fetch_campaign(settings, name, lambda offer: verify_history(settings, offer, name))
    if at not in logged:
        raise LedgerInvalid(f"campaign={name}: the log does not hold your answer's digest; the answer was not sent")
    check_restored(definition, digest, logged[at])
    tell_other(settings, name, SUM, token, body)
    store.confirm(definition)
    return next(stored for stored in store.lines() if stored.name == name)


def verify_history(settings: Settings, offer: dict[str, Any], name: str) -> tuple[Question, dict[int, str]]:
    """Return the definition of a signed offer whose log continues what was seen here, and the sha256 of each answer
    that the log holds, by the aggregator's number. OtherHistory where it does not continue.
    """
    trust = read_pinned_keys(settings)
    verified = verify_offer(offer, trust, name)
    believe_history(settings, offer, verified, trust)
    return verified.definition, verify_answers(offer, trust, verified)


def place(settings: Settings, definition: ForAggregators) -> int:
    """Return which of the two this one is. InputError where it is neither."""
    fingerprint = settings.public("own").fingerprint
    for at, aggregator in enumerate(definition.aggregators):
        if aggregator.fingerprint == fingerprint:
            return at
    raise InputError(f"campaign={definition.campaign}: names two other aggregators")


def collect(settings: Settings, store: AggregatorStore, definition: SharedDefinition, at: int, token: str) -> None:
    """Fetch every sealed share that is for this one, and keep those that open: of this campaign, owner and key."""
    after = -1
    while True:
        body = encode({"token": token, "after": after})
        answered = ask(settings, "POST", f"{path_of(definition.campaign)}/collect", body)
        with reading("shares"):
            page = [(int(part["owner"]), decode_base64(str(part["sealed"]))) for part in answered["shares"]]
        if not page:
            return
        opened = []
        for owner, sealed in page:
            if not after < owner < definition.owners:
                raise InputError(f"owner {owner}: shares must come in the owners' order, each owner's once")
            after = owner
            try:
                text = shares.unseal(sealed, settings.seal, definition.about(owner, at))
            except InputError:
                continue  # of another key or campaign: this owner is left out by both
            if len(text) == 8 * definition.layout.numbers:
                opened.append((owner, text))
        store.add(definition, opened)


def agree_on_owners(
    settings: Settings, definition: SharedDefinition, at: int, token: str, held: bytes, wait: float
) -> Owners:
    """Say whose shares opened, and wait for the other's word."""
    until = time.monotonic() + wait
    while True:
        word = tell_other(settings, definition.campaign, HELD, token, held).get("other")
        if word is not None:
            return read_held(definition, 1 - at, str(word).encode())
        if time.monotonic() > until:
            raise LedgerUnavailable(f"campaign={definition.campaign}: the other aggregator has not spoken; try again")
        time.sleep(POLL)


def noisy(definition: SharedDefinition, at: int, owners: Owners, total: Share) -> bytes:
    """Return the statement of `total` with the whole noise of the campaign's claim."""
    ((release, _),) = definition.plan.runs
    mechanism = DiscreteGaussian(definition.noise_multiplier)
    if mechanism.event != release.event:  # price and draw are one number
        raise WrongState("noise: is not what the campaign's claim is of")
    noise = mechanism.draw(np.zeros(total.size, np.int64), release.sensitivity)
    return sum_payload(definition, at, NoisySum(owners, total + noise.view(np.uint64)))


def summarize(settings: Settings) -> dict[str, Any]:
    """Return what was answered, for the operator."""
    lines = AggregatorStore(settings.ledger).lines()
    keys = ("name", "definition", "epsilon", "delta", "charged", "owners", "sent")
    return {"campaigns": [{key: getattr(line, key) for key in keys} for line in lines]}


def tell_other(settings: Settings, name: str, what: str, token: str, envelope: bytes) -> dict[str, Any]:
    """Send `what`, one of the three words about a campaign, to the server. Return its answer."""
    return ask(settings, "POST", f"{path_of(name)}/{what}", token.encode() + b"\n" + envelope, BYTES)


def path_of(name: str) -> str:
    """Return where a campaign is, at the service."""
    return f"/v1/campaigns/{quote(name, safe='')}"


def sign_payload(settings: Settings, payload: bytes) -> bytes:
    """Return a DSSE envelope of the payload, signed with the key of the settings."""
    return dsse.sign(payload, SigningKey.of(settings.sign).signer)
