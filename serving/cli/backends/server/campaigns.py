"""Campaigns at a server: how far they are, and what ends their turns or them."""

from __future__ import annotations

from typing import Any

from serving.cli.backends.server.asking import asking

OFFERED = ("envelope", "proof", "ensemble", "ensemble_proof", "answer_proofs", "consistency")  # for owners


def listed() -> list[dict[str, Any]]:
    """Every campaign, by name."""
    with asking() as service:
        return [dict(each) for each in service.campaigns()]


def shown(name: str) -> dict[str, Any]:
    """How far one is."""
    with asking() as service:
        return {key: value for key, value in service.campaign(name).items() if key not in OFFERED}


def changed(name: str, act: str, reason: str | None) -> dict[str, Any]:
    """`next`, `close` or `give-up`; how far it is then."""
    with asking() as service:
        return dict(service.change_campaign(name, act, reason))
