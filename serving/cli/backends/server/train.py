"""Plans and training by asking a server, whose worker learns; its progress is streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpserve import Client
from serving.cli.backends.server.asking import asking, finished


def planned(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A job's price; spends nothing."""
    with asking() as service:
        return dict(service.plan(**_said(asked)).raw)


def trained(asked: Mapping[str, Any], key: str | None, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """A job to its end. The same key gives the same job, and spends once."""
    with asking() as service:
        model = asked.get("model") or asked["dataset"]
        before = _champion(service, model)
        submitted = service.submit(**_said(asked), idempotency_key=key)
        body = finished(service, submitted.number, progress)
        then = body.get("evaluation")
        if then is not None:
            worth = {**finished(service, then["job"]), "worth": service.evaluation(then["job"])}
            body["evaluated"] = worth
        answers = _champion(service, model)
    return {**body, "replaces": before and f"{model}@{before}" if before != answers else None}


def champion(model: str) -> int | None:
    """The version that answers to a model's name; None where none does."""
    with asking() as service:
        return _champion(service, model)


def _champion(service: Client, model: str) -> int | None:
    return next((each.version for each in service.models() if each.name == model and each.champion), None)


def _said(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was left out, for which the server has its own defaults."""
    return {name: value for name, value in asked.items() if value is not None and value != {} and value is not False}
