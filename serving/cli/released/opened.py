"""A model that a command opened: verified, wherever its files came from."""

from __future__ import annotations

from dataclasses import dataclass

from models.store.loading import VerifiedModel
from serving.cli.backends.choice import side


@dataclass(frozen=True)
class Opened:
    """`reference`: name@version. `folder`: where it is, None where its files were fetched and are kept nowhere."""

    reference: str
    folder: str | None
    verified: VerifiedModel


def open_model(name: str) -> Opened:
    """A model of the home or of the server, verified here, its graph opened when it is first asked for. Raises
    UnknownName, or VerificationError; never warns."""
    found: Opened = side("released").opened(name)
    return found
