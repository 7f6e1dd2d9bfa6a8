"""The beginning of a ledger, and its keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpserve_verify.errors import DpserveError, LedgerInvalid
from dpserve_verify.keys.trust import (
    PublicKey,
    PublicKeys,
    fingerprint,
    load_log_pem,
    load_public_pem,
)
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay
from typing import Annotated, Literal

from dpserve_verify.entries.entry import EntryForm, Index, ReasonedForm, Text
from dpserve_verify.formats.forms import Limits, form_field

FORMAT = "dpserve-ledger/v1"
Role = Annotated[Literal["issuer", "log"], Limits(refusal="must be one of ('issuer', 'log')")]


class Genesis(EntryForm):
    """The ledger begins, with its first keys."""

    type: Literal["genesis"]
    format: Annotated[Literal["dpserve-ledger/v1"], Limits(refusal=f"must be {FORMAT}")]
    origin: Text
    issuer: Text = form_field(about="PEM of the public key that signs certificates")
    log: Text = form_field(about="PEM of the public key that signs checkpoints")

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        require(self.origin == replay.trust.origin, f"origin={self.origin!r:.80}: must be {replay.trust.origin}")
        replay.keys.judge_genesis(seq, self)


class KeyAdded(ReasonedForm):
    """A key may sign from here on."""

    type: Literal["key-added"]
    role: Role
    keyid: Text
    pem: Text

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.keys.judge_added(seq, self)


class KeyRetired(ReasonedForm):
    """A key signs no more; what it signed stands."""

    type: Literal["key-retired"]
    role: Role
    keyid: Text

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.keys.judge_retired(seq, self)


class KeyCompromised(ReasonedForm):
    """A key speaks for nothing after an entry."""

    type: Literal["key-compromised"]
    role: Role
    keyid: Text
    after: Index

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.keys.judge_compromised(seq, self)


class Revoked(ReasonedForm):
    """A certificate is good no more."""

    type: Literal["revoked"]
    issued: Index = form_field(about="index of the entry that bound the certificate")

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.keys.judge_revoked(seq, self, replay.issued)


@dataclass(slots=True)
class KeyState:
    """A key as its entries leave it; what the index's row must say.

    An issuer's speaks for the `issued` entries first <= index < until, a log's for checkpoints first <= size < until.
    """

    role: str
    pem: str
    added: int
    first: int
    until: int | None = None
    ended: str | None = None

    @property
    def good(self) -> bool:
        """Return whether the key may still sign."""
        return self.until is None

    def holds(self, number: int) -> bool:
        """Return whether the key speaks for this number: an entry's index for an issuer's key, a tree's size for a
        log's.
        """
        return self.first <= number and (self.until is None or number < self.until)


@dataclass
class KeyRing:
    """Reads the entries about keys in order. `keys`: every key by keyid, in the order they were added; `revocations`:
    the index of the `revoked` entry by that of the `issued` one. Raises LedgerInvalid."""

    trust: PublicKeys
    keys: dict[str, KeyState] = field(default_factory=dict)
    revocations: dict[int, int] = field(default_factory=dict)

    @property
    def issuers(self) -> dict[str, KeyState]:
        """Return every key that ever signed certificates, by keyid."""
        return {keyid: key for keyid, key in self.keys.items() if key.role == "issuer"}

    @property
    def logs(self) -> dict[str, KeyState]:
        """Return every key that ever signed checkpoints, by keyid."""
        return {keyid: key for keyid, key in self.keys.items() if key.role == "log"}

    def judge_genesis(self, seq: int, form: Genesis) -> None:
        """Judge the first keys: the log's must be the pinned one, the issuer's a pinned one, both from the
        beginning.
        """
        first = self.trust.logs[0]
        require(form.log == first.pem and first.from_size == 0, "log: must be the pinned log key")
        pinned = [key.pem for key in self.trust.issuers if key.from_index == seq]
        require(form.issuer in pinned, "issuer: must be a pinned issuer key, valid from entry 0")
        for role, pem in (("issuer", form.issuer), ("log", form.log)):
            self.keys[_keyid(role, pem)] = KeyState(role, pem, seq, seq)

    def judge_added(self, seq: int, form: KeyAdded) -> None:
        """Take in a `key-added` entry. LedgerInvalid where it is not in order."""
        role, pem = form.role, form.pem
        keyid = _keyid(role, pem)
        require(form.keyid == keyid, f"keyid={form.keyid!r:.80}: must be the key's fingerprint {keyid}")
        require(keyid not in self.keys, f"keyid={keyid}: was a key of this ledger before", "wrong_state")
        first = seq + 1 if role == "log" else seq
        firsts = {("issuer", key.pem): key.from_index for key in self.trust.issuers}
        firsts |= {("log", key.pem): key.from_size for key in self.trust.logs}
        pinned = [(place, at) for (place, key_pem), at in firsts.items() if key_pem == pem]
        require(pinned in ([], [(role, first)]), f"pem: the pinned trust names this key otherwise, {pinned}")
        if role == "log":  # a log has one key at a time
            for key in self.logs.values():
                if key.good:
                    self._close(key, first)
        self.keys[keyid] = KeyState(role, pem, seq, first)

    def judge_retired(self, seq: int, form: KeyRetired) -> None:
        """Take in a `key-retired` entry. LedgerInvalid where it is not in order."""
        key = self._require_known(form)
        if key.good:
            self._require_other(form.keyid, key)
        if key.role == "log":  # says what the entry before it has done
            handed_over = [key_state for key_state in self.logs.values() if key_state.added == seq - 1]
            replaced = bool(handed_over) and (key.until, key.ended) == (handed_over[0].first, "retired")
            require(replaced, f"keyid={form.keyid}: a log key is retired by the entry after the one that adds the next")
            return
        require(key.good, f"keyid={form.keyid}: was {key.ended} before", "wrong_state")
        self._close(key, seq)

    def judge_compromised(self, seq: int, form: KeyCompromised) -> None:
        """Take in a `key-compromised` entry. LedgerInvalid where it is not in order."""
        key, after = self._require_known(form), form.after
        require(after < seq, f"after={after}: must be the index of an entry, 0 to {seq - 1}", "bad_input")
        self._require_other(form.keyid, key)
        until = max(key.first, after + 1 + (key.role == "log"))
        good = key.until is None or until < key.until or (key.ended == "retired" and until == key.until)
        ended = f"keyid={form.keyid}: was {key.ended} before, and speaks for nothing after entry {after}"
        require(good, ended, "wrong_state")
        key.until, key.ended = until, "compromised"

    def judge_revoked(self, seq: int, form: Revoked, issued: Collection[int]) -> None:
        """Judge `revoked`: a certificate is good no more. `issued`: indices of the `issued` and `derived` entries so
        far.
        """
        index = form.issued
        require(index in issued, f"issued={index}: no certificate was issued by that entry", "unknown_name")
        require(index not in self.revocations, f"issued={index}: its certificate was revoked before", "wrong_state")
        self.revocations[index] = seq

    def log_key_at(self, size: int) -> Ed25519PublicKey:
        """Return the key that signed the log's checkpoint of `size` entries, compromised later or not: held against the
        entries themselves, it is evidence all the same. LedgerInvalid where there was none.

        A checkpoint must be signed by this key and by that of the checkpoint before it: so a new log key is vouched for
        by the one that it follows, and whoever pinned the old one can follow.
        """
        speaking = [key for key in self.logs.values() if key.first <= size]
        require(bool(speaking), f"checkpoint of size {size}: no log key is known")
        return load_log_pem(speaking[-1].pem)

    def issuer_keys(self, index: int) -> dict[str, PublicKey]:
        """Return the issuer keys by keyid that may speak for the entry at `index`, by the entries and by the pinned
        trust.
        """
        pinned = {key.pem: key for key in self.trust.issuers}
        return {
            keyid: load_public_pem(key.pem)
            for keyid, key in self.issuers.items()
            if key.holds(index) and (key.pem not in pinned or pinned[key.pem].valid_at(index))
        }

    def end(self, size: int) -> None:
        """Check after the last entry that every pinned key from within the ledger was found in it."""
        firsts = {key.pem: key.from_index for key in self.trust.issuers}
        firsts |= {key.pem: key.from_size for key in self.trust.logs}
        added = {key.pem for key in self.keys.values()}
        missing = [pem for pem, first in firsts.items() if pem not in added and first < size]
        require(not missing, f"keys: the pinned trust names {len(missing)} that the ledger does not add")

    def _require_known(self, form: KeyRetired | KeyCompromised) -> KeyState:
        keyid = form.keyid
        require(keyid in self.keys, f"keyid={keyid!r:.80}: no such key was added before")
        role = self.keys[keyid].role
        require(form.role == role, f"role={form.role!r:.40}: must be {role}")
        return self.keys[keyid]

    def _require_other(self, keyid: str, key: KeyState) -> None:
        successors = [
            state for name, state in self.keys.items() if name != keyid and state.role == key.role and state.good
        ]
        only = f"keyid={keyid}: is the only good {key.role} key: rotate, and another takes its place"
        require(bool(successors), only, "wrong_state")

    def _close(self, key: KeyState, until: int) -> None:
        ends = {pinned_key.pem: pinned_key.until_index for pinned_key in self.trust.issuers}
        ends |= {pinned_key.pem: pinned_key.until_size for pinned_key in self.trust.logs}
        pinned = ends.get(key.pem)
        require(pinned is None or pinned <= until, f"{key.role}: the pinned trust has this key good until {pinned}")
        key.until, key.ended = until, "retired"


def _keyid(role: str, pem: str) -> str:
    try:
        return fingerprint(load_log_pem(pem) if role == "log" else load_public_pem(pem))
    except DpserveError as error:
        raise LedgerInvalid(f"{role}: {error.message}") from error
