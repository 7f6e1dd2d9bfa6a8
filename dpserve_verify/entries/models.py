"""Which version of a model answers, and which models lists show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from dpserve_verify.entries.entry import SAYS, Count, Index, Name, ReasonedForm
from dpserve_verify.formats.forms import Limits, form_field
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay


MOST_REASON = 1000  # characters
_REASON = f"must say something, in at most {MOST_REASON} characters"


class PlacedForm(ReasonedForm):
    """Which certified model answers to its name, or is kept from serving. It changes no promise."""

    name: Name
    version: Count
    issued: Index
    reason: Annotated[str, Limits(pattern=SAYS, longest=MOST_REASON, refusal=_REASON)]

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        certified = self.issued in replay.issued and replay.models[self.issued][0] == self.name
        require(certified, f"issued={self.issued}: does not certify {self.name}", "bad_input")


class ModelPlaced(PlacedForm):
    """A version is taken out of service, or comes back."""

    type: Literal["model-retired", "model-restored"]


class ModelPromoted(PlacedForm):
    """A version answers to the model's name."""

    type: Literal["model-promoted"]
    replaces: Count | None = form_field(absent=True)
    worth: Index | None = form_field(absent=True, about="the statement that speaks for it")

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        super().judge(replay, seq)
        revoked = f"model={self.name}@{self.version}: its certificate was revoked"
        require(self.issued not in replay.keys.revocations, revoked, "wrong_state")
        replay.names.note_promoted(self.name, self.issued)
        another = self.replaces != self.version
        require(another, f"replaces={self.replaces!r:.40}: must be another version, a whole number from 1")
        same = self.worth is None or replay.worths.get(self.worth) == self.issued
        require(same, f"worth={self.worth!r:.40}: must be a statement before of what the certified model is worth")


class ModelArchived(ReasonedForm):
    """Lists leave a model out, or let it in again."""

    type: Literal["model-archived", "model-unarchived"]
    name: Name

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.archive.judge("model", self.name, self.type == "model-archived", replay.names.champions)


def check_reason(reason: str) -> str:
    """Return why a version is placed; InputError unless it says something, in at most MOST_REASON characters."""
    require(
        bool(reason.strip()) and len(reason) <= MOST_REASON, f"reason: {len(reason)} characters; {_REASON}", "bad_input"
    )
    return reason
