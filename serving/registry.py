"""The models that are served: what lies in the home's store, each verified before it answers, and again when it
changes.

A look costs a `stat` of every file. A bundle whose files changed is read and verified anew; one that does not verify is
not served, and the others go on.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from accountant.canonical import decimal_string
from accountant.certificate import digest
from accountant.dsse import parse
from accountant.errors import DpserveError, ModelInvalid, UnknownName, VerificationError
from accountant.home import Home
from accountant.keys import PublicKeys
from models.bundle import CHAMPION, FILES, ModelStore
from models.verified import VerifiedModel, load_of_home
from serving.metrics import FAILURES, PREDICTIONS, SECONDS

LOG = logging.getLogger("dpserve.registry")

Stamp = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Served:
    """A verified version of a model, with what every answer repeats made once."""

    name: str
    version: int
    verified: VerifiedModel

    @property
    def reference(self) -> str:
        return f"{self.name}@{self.version}"

    @cached_property
    def certificate(self) -> dict[str, Any]:
        found = self.verified.certificate
        return {
            "entry": found.issued,
            "statement": digest(parse(self.verified.bundle.envelope).payload),
            "model": digest(self.verified.bundle.onnx),
            "epsilon": decimal_string(found.epsilon),
            "delta": decimal_string(found.delta),
            "relation": found.relation,
        }

    @cached_property
    def fragment(self) -> orjson.Fragment:
        return orjson.Fragment(orjson.dumps(self.certificate))

    @cached_property
    def predictions(self) -> Any:
        return PREDICTIONS.labels(self.reference)

    @cached_property
    def seconds(self) -> Any:
        return SECONDS.labels(self.reference)


@dataclass(frozen=True)
class Slot:
    """What was found in a version's folder: a model, or why it is not served."""

    stamp: Stamp
    served: Served | None = None
    error: VerificationError | None = None


class Registry:
    """Looked at by `refresh` alone, in one thread at a time; read from any."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], Slot] = {}
        self._champions: dict[str, int | VerificationError] = {}
        self._trust: PublicKeys | None = None

    def refresh(self, home: Home) -> None:
        """Load what is new, drop what is gone, verify what changed; and everything, where a key was added or ended or a
        certificate revoked. New tables replace the old ones in one step."""
        store, trust = ModelStore(home.models), home.trust
        known = self._slots if trust == self._trust else {}
        slots: dict[tuple[str, int], Slot] = {}
        champions: dict[str, int | VerificationError] = {}
        for name in store.names():
            try:
                versions = store.versions(name)
            except UnknownName:  # gone since
                continue
            for version in versions:
                slots[name, version] = self._slot(home, trust, store, name, version, known.get((name, version)))
            champions[name] = _champion(store, name)
        self._slots, self._champions, self._trust = slots, champions, trust

    def _slot(
        self, home: Home, trust: PublicKeys, store: ModelStore, name: str, version: int, known: Slot | None
    ) -> Slot:
        folder = store.root / name / str(version)
        stamp = _stamp(folder)
        if known is not None and known.stamp == stamp:
            return known
        try:
            served = Served(name, version, load_of_home(home, folder, name, trust))
        except VerificationError as error:
            return self._failed(name, version, stamp, error)
        except Exception as error:  # fail closed: one bundle that cannot be opened must not stop the others
            return self._failed(name, version, stamp, ModelInvalid(f"model: cannot be opened ({type(error).__name__})"))
        LOG.info("model %s verified and loaded", served.reference)
        return Slot(stamp, served)

    @staticmethod
    def _failed(name: str, version: int, stamp: Stamp, error: VerificationError) -> Slot:
        FAILURES.labels(error.code).inc()
        LOG.error("model %s@%d is not served: %s", name, version, error.message)
        return Slot(stamp, error=error)

    def get(self, reference: str) -> Served:
        """`adult`, `adult@champion` or `adult@2`. UnknownName, or the error for which it is not served."""
        name, at, version = reference.partition("@")
        if name not in self._champions:
            raise UnknownName(f"model={reference[:80]!r}: there is no such model", model=reference[:80])
        if not at or version == CHAMPION:
            slot = self._slots.get((name, self._champion_of(name)))
        else:
            slot = self._slots.get((name, int(version))) if _is_version(version) else None
        if slot is None:
            raise UnknownName(f"model={reference[:80]!r}: there is no such version", model=reference[:80])
        if slot.served is None:
            raise ModelInvalid(f"model={reference[:80]}: does not verify, so it is not served", reason=_reason(slot))
        return slot.served

    def _champion_of(self, name: str) -> int:
        found = self._champions[name]
        if isinstance(found, VerificationError):
            raise ModelInvalid(f"model={name}: its champion cannot be told", reason=found.message)
        return found

    @property
    def loaded(self) -> int:
        return sum(slot.served is not None for slot in self._slots.values())

    def to_json(self) -> list[dict[str, Any]]:
        """Every version, served or not."""
        return [self._line(name, version, slot) for (name, version), slot in sorted(self._slots.items())]

    def _line(self, name: str, version: int, slot: Slot) -> dict[str, Any]:
        return {
            "model": f"{name}@{version}",
            "name": name,
            "version": version,
            CHAMPION: self._champions.get(name) == version,
            "state": "served" if slot.served else "invalid",
            "certificate": slot.served.certificate if slot.served else None,
            "problem": None if slot.error is None else _reason(slot),
        }


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10 and text[0] != "0"


def _reason(slot: Slot) -> str:
    return "" if slot.error is None else f"{slot.error.code}: {slot.error.message}"


def _champion(store: ModelStore, name: str) -> int | VerificationError:
    try:
        return store.champion(name)
    except (DpserveError, OSError) as error:
        return error if isinstance(error, VerificationError) else ModelInvalid(f"champion: {error}")


def _stamp(folder: Path) -> Stamp:
    """Changes when a file of the bundle does: the time of change cannot be set back."""
    return tuple(_file_stamp(folder / name) for name in FILES)


def _file_stamp(path: Path) -> tuple[int, int, int, int]:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return (0, 0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
