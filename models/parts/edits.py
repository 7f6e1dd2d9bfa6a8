"""The record of an edit: what a person changed in a released model, and why."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.formats.canonical import decode_canonical

MAX_EDIT = 1 << 20  # bytes of what one edit did


@dataclass(frozen=True)
class Edit:
    """What a person changed after the release. `at`: ISO time with its zone; `feature`: a feature's name; `what`: a
    JSON object as canonical text (`dpserve_verify.formats.canonical`: sorted keys, no floats). ModelInvalid where it is
    not so."""

    at: str
    by: str
    why: str
    feature: str
    what: str

    def __post_init__(self) -> None:
        for field in fields(self):
            text = getattr(self, field.name)
            if type(text) is not str or not text:
                raise ModelInvalid(f"edit.{field.name}={text!r}: must be a text, not empty")
        try:
            zone = datetime.fromisoformat(self.at).tzinfo
            change = decode_canonical(self.what.encode(), MAX_EDIT)
        except ValueError as error:  # an unreadable time, or a lone surrogate
            raise ModelInvalid(f"edit: {error}") from error
        except InputError as error:
            raise ModelInvalid(f"edit.what: {error.message}") from error
        if zone is None or not isinstance(change, dict):
            raise ModelInvalid(f"edit: at={self.at!r} must say its zone, what must be a JSON object")

    def to_json(self) -> dict[str, str]:
        """Return its five texts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
