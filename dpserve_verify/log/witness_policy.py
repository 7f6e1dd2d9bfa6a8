"""Whose cosignatures make a checkpoint valid: the policy file of c2sp.org/tlog-policy.

    log <vkey> [<url>]                        witness <name> <vkey> [<url>]
    group <name> all|any|<k> <name>...        quorum <name>|none

Keys are Ed25519: a log's of type 0x01, a witness's of type 0x04. A witness's URL is its submission prefix. Names mean
nothing outside the file. One thing is stricter than the specification: a log's key may not be a witness's as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.keys.verifier_keys import COSIGNATURE, ED25519, parse_verifier_key
from dpserve_verify.log.notes import MAX_SIGNATURES

NONE = "none"  # the quorum that asks for nobody
POLICY_LIMIT = 262_144  # bytes
MOST = MAX_SIGNATURES - 1  # logs, witnesses, groups: a note holds the log's signature and one of each witness
_NUMBER = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Log:
    """A log whose checkpoints the policy is about; its key's name is its origin."""

    origin: str
    public_key: Ed25519PublicKey
    url: str | None


@dataclass(frozen=True)
class Witness:
    """`name`: within the policy. `key_name`: in signature lines."""

    name: str
    key_name: str
    public_key: Ed25519PublicKey
    url: str | None


@dataclass(frozen=True)
class Group:
    """Has witnessed a checkpoint once `threshold` of its members have."""

    name: str
    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class WitnessPolicy:
    """Groups stand in the order of the file: members come before the group that names them."""

    logs: tuple[Log, ...]
    witnesses: tuple[Witness, ...]
    groups: tuple[Group, ...]
    quorum: str

    def met_by(self, cosigners: Collection[str]) -> bool:
        """Return whether cosignatures of the witnesses with these names are enough."""
        met = {NONE, *cosigners}
        for group in self.groups:
            if sum(member in met for member in group.members) >= group.threshold:
                met.add(group.name)
        return self.quorum in met

    def check_log(self, origin: str, public_key: Ed25519PublicKey) -> None:
        """Raise InputError where the policy is about other logs than this one; one that names no log is about any."""
        ours = (origin, public_key.public_bytes_raw())
        if self.logs and ours not in [(log.origin, log.public_key.public_bytes_raw()) for log in self.logs]:
            raise InputError(f"policy: none of its log lines holds the key of {origin!r}")


def read_witness_policy(path: Path) -> WitnessPolicy:
    """Read the policy in a file. InputError names the line that is wrong."""
    try:
        with path.open("rb") as file:
            return parse_policy(file.read(POLICY_LIMIT + 1))
    except OSError as error:
        raise InputError(f"policy={path}: cannot be read ({error.strerror})") from error


def parse_policy(raw: bytes) -> WitnessPolicy:
    """Read a policy from bytes. Bytes that are no UTF-8 are opaque, and kept as surrogates."""
    if len(raw) > POLICY_LIMIT:
        raise InputError(f"policy: must be at most {POLICY_LIMIT} bytes")
    reader = _Reader()
    for number, line in enumerate(raw.decode("utf-8", "surrogateescape").split("\n"), 1):
        try:
            reader.read(line)
        except DpserveError as error:
            raise InputError(f"policy, line {number}: {error.message}") from error
    return reader.policy()


def printable_name(name: str) -> str:
    """Return a name as text that can be printed, whatever its bytes."""
    return name.encode("utf-8", "backslashreplace").decode()


class _Reader:
    """The lines so far."""

    def __init__(self) -> None:
        self._logs: list[Log] = []
        self._witnesses: list[Witness] = []
        self._groups: list[Group] = []
        self._quorum: str | None = None
        self._free: dict[str, bool] = {}  # defined name -> not yet a member of a group
        self._kinds = {"log": self._log, "witness": self._witness, "group": self._group, "quorum": self._set_quorum}

    def read(self, line: str) -> None:
        if _FORBIDDEN.search(line):
            raise InputError("must hold no control character but tab")
        words = [word for word in re.split(r"[ \t]+", line) if word]
        if not words or words[0].startswith("#"):
            return
        if words[0] not in self._kinds:
            raise InputError(f"{words[0][:40]!a}: must be log, witness, group or quorum")
        self._kinds[words[0]](words[1:])

    def policy(self) -> WitnessPolicy:
        if self._quorum is None:
            raise InputError("policy: must have a quorum line")
        logs, witnesses = tuple(self._logs), tuple(self._witnesses)
        if set(_raw(logs)) & set(_raw(witnesses)):
            raise InputError("policy: a log must not be its own witness (the same key)")
        return WitnessPolicy(logs, witnesses, tuple(self._groups), self._quorum)

    def _log(self, words: list[str]) -> None:
        vkey, url = _arguments(words, 1)
        origin, key = parse_verifier_key(vkey[0], ED25519)
        self._logs.append(Log(origin, key, url))
        _check(self._logs, "logs")

    def _witness(self, words: list[str]) -> None:
        (name, vkey), url = _arguments(words, 2)
        key_name, key = parse_verifier_key(vkey, COSIGNATURE)
        self._define(name)
        self._witnesses.append(Witness(name, key_name, key, url))
        _check(self._witnesses, "witnesses")

    def _group(self, words: list[str]) -> None:
        if len(words) < 3:
            raise InputError("group: must be a name, all or any or a number, and at least one member")
        name, needed, *members = words
        for member in members:  # each name is a member once, so that no witness counts twice
            if not self._free.get(member, False):
                raise InputError(f"member={member[:40]!a}: must be defined above, and be a member of no group yet")
            self._free[member] = False
        self._define(name)
        self._groups.append(Group(name, _threshold(needed, len(members)), tuple(members)))
        if len(self._groups) > MOST:
            raise InputError(f"must be at most {MOST} groups")

    def _set_quorum(self, words: list[str]) -> None:
        if self._quorum is not None:
            raise InputError("quorum: must come once")
        if len(words) != 1 or words[0] not in {NONE, *self._free}:
            raise InputError("quorum: must be none, or one witness or group of the lines above")
        self._quorum = words[0]

    def _define(self, name: str) -> None:
        if name == NONE or name in self._free:
            raise InputError(f"name={name[:40]!a}: must be new and not {NONE!r}")
        self._free[name] = True


def _arguments(words: list[str], count: int) -> tuple[list[str], str | None]:
    """Return `count` words, and the URL behind them where there is one."""
    if not count <= len(words) <= count + 1:
        raise InputError(f"must have {count} or {count + 1} words after the first")
    return words[:count], words[count] if len(words) > count else None


def _threshold(text: str, members: int) -> int:
    if text in ("any", "all"):
        return 1 if text == "any" else members
    if not _NUMBER.fullmatch(text) or int(text) > members:
        raise InputError(f"threshold={text[:40]!a}: must be all, any or a number from 1 to {members}")
    return int(text)


def _raw(lines: Collection[Log] | Collection[Witness]) -> Iterator[bytes]:
    return (line.public_key.public_bytes_raw() for line in lines)


def _check(lines: list[Log] | list[Witness], what: str) -> None:
    if len(lines) > MOST:
        raise InputError(f"must be at most {MOST} {what}")
    if len(set(_raw(lines))) != len(lines):
        raise InputError("its key came before: every key once")
