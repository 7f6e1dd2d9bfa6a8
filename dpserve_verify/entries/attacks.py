"""Attacks by canaries that a training registered: begun once, and stated once, so that no result can be chosen."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpserve_verify.certificates.attack import Runs
from dpserve_verify.entries.entry import EntryForm, Hex, Index, Mark, Text
from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.formats.forms import form_field
from dpserve_verify.privacy.attack_bound import ceiling, is_unlikely
from dpserve_verify.privacy.events import plan_from_json
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import JobState, Replay


class AttackForm(EntryForm):
    """An entry about the attack on what a job made."""

    generation: ClassVar[int] = 46

    reservation: Index = form_field(about="the job that made the model, and registered the attack")
    coins: Hex = form_field(about="sha256 of a secret and the coins: in which runs a canary is")

    def require_job(self, replay: Replay) -> JobState:
        """Return the job, whose attack was registered. LedgerInvalid where there is none such, or no model yet."""
        job, at = replay.job(self.reservation), self.reservation
        require(at in replay.attacks.registered, f"job {at}: no attack was registered with it", "wrong_state", job=at)
        require(job.issued is not None, f"job {at}: has made no model yet", "wrong_state", job=at)
        return job


class AttackStarted(AttackForm):
    """An attack begins: its coins are drawn, and fixed by a digest, before anything is released."""

    type: Literal["attack-started"]
    by: Text

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        self.require_job(replay)
        begun = replay.attacks.begun.get(self.reservation)
        once = f"job {self.reservation}: its attack was begun by entry {begun and begun[0]}, and is made once"
        require(begun is None, once, "wrong_state", job=self.reservation)
        replay.attacks.begun[self.reservation] = seq, self.coins


class Attacked(AttackForm):
    """An attack was stated: what it shows to be the least privacy loss."""

    type: Literal["attacked"]
    started: Index
    statement: Hex
    model: Hex
    name: str
    runs: Runs = form_field(about="as many as were registered")
    right: Index = form_field(about="how many guesses are right, by the statement")
    refuted: Mark | None = form_field(absent=True, about="above the claim: as so many right ones show")

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        job, attacks = self.require_job(replay), replay.attacks
        begun = attacks.begun.get(self.reservation)
        require(begun == (self.started, self.coins), "started: must be the entry that began it, with the same coins")
        require(self.reservation not in attacks.stated, f"job {self.reservation}: its attack was stated", "wrong_state")
        same = self.name == job.model and self.model == replay.models[job.issued or 0][1].hex()
        require(same, f"model: must be that of entry {job.issued}")
        of = attacks.registered[self.reservation]
        require(self.runs == of.runs, f"runs={self.runs}: {of.runs} were registered")
        require(self.right <= of.runs, f"right={self.right}: must be at most {of.runs}, the guesses")
        shown = is_unlikely(self.right, of.runs, of.claimed)
        marked = f"refuted: must {'' if shown else 'not '}be marked, as {self.right} of {of.runs} are right"
        require(shown == (self.refuted is True), marked)
        attacks.stated[self.reservation] = seq
        if shown:
            attacks.refuted[seq] = job.issued or 0


@dataclass
class Attackable:
    """In how many runs a job's learner is attacked, and the most of 10,000 guesses that its claim lets be right."""

    runs: int
    claimed: int


@dataclass
class Attacks:
    """By job: what its attack was registered with, the entry that began it with its coins, and the entry
    that states it; and of each entry that states more loss than was claimed, the certificate.
    """

    registered: dict[int, Attackable] = field(default_factory=dict)
    begun: dict[int, tuple[int, str]] = field(default_factory=dict)
    stated: dict[int, int] = field(default_factory=dict)
    refuted: dict[int, int] = field(default_factory=dict)

    def note_reserved(self, seq: int, value: Mapping[str, Any]) -> None:
        """Note the attack that a `reserved` entry registers."""
        if "attack" in value:
            registers = not value.keys() & {"evaluates", "profile", "contributes"}
            require(registers, "attack: is of a job that makes a model")
            epsilon, delta = (parse_decimal(value["claim"][name]) for name in ("epsilon", "delta"))
            claimed = ceiling(plan_from_json(value["plan"]), epsilon, delta)
            self.registered[seq] = Attackable(value["attack"], claimed)

    def problems(self, revoked: Container[int]) -> list[str]:
        """Return a line for each certificate that an attack refutes, and that was not revoked."""
        return [
            f"entry {at}: an attack shows more privacy loss than the certificate of entry {issued} claims; revoke it"
            for at, issued in self.refuted.items()
            if issued not in revoked
        ]
