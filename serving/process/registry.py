"""The models that are served: what lies in the home's store, each verified before it answers, and again when it
changes.

A bundle is read and verified when it is first asked for, or in the background before that; what was verified is kept in
memory up to a bound, the rest is verified anew when it is asked for again. A bundle whose files change leaves memory at
the next look; one that does not verify is not served, and the others go on.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import orjson

from accountant.errors import NothingServed, UnknownName
from accountant.home import Home
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.errors import CertificateRevoked, LedgerUnavailable, ModelInvalid, VerificationError
from dpserve_verify.formats.canonical import whole_number
from dpserve_verify.keys.dsse import parse
from dpserve_verify.keys.trust import PublicKeys
from models.store.bundle import CHAMPION, ModelStore
from models.store.index import NOTHING, Shelf, Stamp, look, look_at, stamp_of
from models.store.listing import Looked, line
from models.store.loading import VerifiedModel, load_of_home
from models.store.standing import Standing, entry_of, standing, way_out
from serving.process.config.settings import CHAMPIONS, ServerSettings
from serving.process.last_look import LastLook
from serving.process.watch.access_log import note_subject
from serving.process.watch.metrics import FAILURES, OTHER, count_predictions

LOG = logging.getLogger("dpserve.registry")
PROMISED = ("epsilon", "delta", "relation", "vouched", "alone")  # what answers say of a certificate
AT_A_LOOK = 200  # versions beside those in memory whose files are looked at each time, in turn

Key = tuple[str, int]
Stamps = tuple[Stamp, ...]


@dataclass(frozen=True)
class Served:
    """A verified version of a model, with what every answer repeats made once. `counts_alone`: whether its predictions
    are a series of their own now.
    """

    name: str
    version: int
    verified: VerifiedModel
    counts_alone: Callable[[], bool] = lambda: True

    @cached_property
    def reference(self) -> str:
        """Return the name and version, as in `adult@2`."""
        return f"{self.name}@{self.version}"

    @cached_property
    def certificate(self) -> dict[str, Any]:
        """Return what answers say of the certificate: its entry, digests and claim."""
        certificate = self.verified.certificate
        return {
            "entry": certificate.issued,
            "statement": digest(parse(self.verified.bundle.envelope).payload),
            "model": digest(self.verified.bundle.onnx),
            **{key: value for key, value in certificate.to_json().items() if key in PROMISED},
        }

    @property
    def subject(self) -> dict[str, str | None]:
        """Return what the model was learnt from and how, and what it predicts."""
        form = self.verified.certificate.form
        target = self.verified.ensemble.target
        return {"dataset": form.dataset.name, "learner": form.public.learner, "target": target}

    @cached_property
    def memory(self) -> dict[str, Any]:
        """Return what doors worked out of it, by name, for as long as it is in memory."""
        return {}

    @cached_property
    def fragment(self) -> orjson.Fragment:
        """Encode `certificate` as JSON, once for all answers."""
        return orjson.Fragment(orjson.dumps(self.certificate))

    def count(self, records: int, seconds: float) -> None:
        """Count an answer: so many records predicted, in so many seconds."""
        count_predictions(self.reference if self.counts_alone() else OTHER, records, seconds)


class NotHeld(Exception):
    """The model is not in memory: ask again where waiting is no harm."""


@dataclass(frozen=True, kw_only=True)
class Slot(Looked):
    """What was found in a version's folder when its files had these stamps: here all of it was verified."""

    stamps: Stamps

    @property
    def dataset(self) -> str | None:
        """Return the name of the dataset in the certificate."""
        return self.subject["dataset"]


class Registry:
    """Looked at by `refresh` alone, in one thread at a time; read from any. `most`: models kept in memory; `series`:
    which versions have metrics of their own, "champions" or "all".
    """

    def __init__(
        self, most: int = ServerSettings.model_fields["models_in_memory"].default, series: str = CHAMPIONS
    ) -> None:
        self._most, self._series = most, series
        self._seen = NOTHING
        self._swept: Mapping[str, Shelf] | None = None  # the shelves for which `_served` was counted
        self._served = 0
        self._slots: dict[Key, Slot] = {}
        self._held: dict[Key, Served] = {}
        self._used: dict[Key, int] = {}
        self._clock = itertools.count()
        self._turn = 0
        self._home: Home | LastLook | None = None
        self._root = ""
        self._trust: PublicKeys | None = None
        self._lock = threading.RLock()  # whoever changes what is held; readers need none

    # Looking

    def refresh(self, home: Home | LastLook, seconds: float = float("inf"), trust: PublicKeys | None = None) -> None:
        """Drop what is gone or changed, and everything where a key was added or ended or a certificate revoked; then
        verify what was not yet, for about so many seconds: the rest waits for the next look, or until it is asked for.
        `trust`: the home's, where the caller has it already.
        """
        seen, trust = look(ModelStore(home.models), self._seen), trust or home.trust
        with self._lock:
            if trust != self._trust or isinstance(self._home, LastLook) != isinstance(home, LastLook):
                self._slots, self._held = {}, {}
            self._home, self._root, self._seen, self._trust = home, str(home.models), seen, trust
            if seen.shelves is not self._swept:
                keys = set(self._served_keys())
                self._drop(self._slots.keys() - keys)
                self._swept, self._served = seen.shelves, len(keys)
        for key in self._in_turn():
            slot = self._slots.get(key)
            if slot is not None and slot.stamps != self._stamps(key):
                self._drop([key])
        end = time.monotonic() + seconds  # from here on: a look that takes long would leave no time, each time anew
        if len(self._slots) == self._served:
            return
        for key in [key for key in self._served_keys() if key not in self._slots]:
            if time.monotonic() > end:
                return
            self._verify(key, keep=len(self._held) < self._most)

    def _served_keys(self) -> Iterator[Key]:
        """Yield every version that is not retired."""
        return (
            (name, v) for name, shelf in self._seen.shelves.items() for v in shelf.versions if v not in shelf.retired
        )

    def _in_turn(self) -> list[Key]:
        """Return the versions in memory, and as many of the others as one look may cost."""
        with self._lock:
            start = self._turn if self._turn < len(self._slots) else 0
            self._turn = start + AT_A_LOOK
            return [
                *self._held,
                *(key for key in itertools.islice(self._slots, start, self._turn) if key not in self._held),
            ]

    def _drop(self, keys: Iterable[Key]) -> None:
        with self._lock:
            for key in keys:
                self._slots.pop(key, None)
                self._held.pop(key, None)

    # Loading

    def _verify(self, key: Key, keep: bool) -> Served | None:
        """Read and verify a version, and note what was found."""
        name, version = key
        with self._lock:
            loaded = self._held.get(key)
            if loaded is not None or self._home is None:  # another thread was faster
                return loaded
            stamps, slot = self._stamps(key), self._slots.get(key)
            if slot is not None and slot.error is not None and slot.stamps == stamps:
                return None
            try:
                home, folder = self._home, self._home.models / name / str(version)
                if isinstance(home, LastLook):
                    verified = home.load(folder, name)
                else:
                    verified = load_of_home(home, folder, name, self._trust)
                served = Served(name, version, verified, partial(self.counts_alone, name, version))
            except VerificationError as error:
                self._note_failure(key, stamps, error)
                return None
            except LedgerUnavailable:  # the bundle may be sound: whoever asks later is told
                raise
            except Exception as error:  # fail closed: one bundle that cannot be opened must not stop the others
                self._note_failure(key, stamps, ModelInvalid(f"model: cannot be opened ({type(error).__name__})"))
                return None
            if slot is None:
                LOG.info("model %s verified", served.reference)
            self._slots[key] = Slot(certificate=served.certificate, subject=served.subject, stamps=stamps)
            if keep:
                while len(self._held) >= self._most:  # what was not asked for the longest makes room
                    del self._held[min(self._held, key=lambda each: self._used.get(each, -1))]
                self._held[key] = served
            return served

    def _note_failure(self, key: Key, stamps: Stamps, error: VerificationError) -> None:
        """Note why a version is not served. One that was revoked is as it was decided: a state, and no failure."""
        if isinstance(error, CertificateRevoked):
            LOG.info("model %s@%d is not served: %s", *key, error.message)
        else:
            FAILURES.labels(error.code).inc()
            LOG.error("model %s@%d is not served: %s", *key, error.message)
        self._slots[key] = Slot(error=error, stamps=stamps)

    def _stamps(self, key: Key) -> Stamps:
        folder = f"{self._root}/{key[0]}/{key[1]}"
        return tuple(stamp_of(f"{folder}/{name}") for name in FILES)

    # Answering

    def get_loaded(self, reference: str) -> Served:
        """Return a version that is in memory, at once. Raises as `get`; NotHeld where it would have to read files, or
        to say why it will not.
        """
        key = self._key(reference)
        self._used[key] = next(self._clock)
        served = self._held.get(key)
        if served is None:
            raise NotHeld
        return served

    def get(self, reference: str) -> Served:
        """Return a verified version: `adult`, `adult@champion` or `adult@2`. Raises UnknownName, or the error for which
        it is not served. Reads and verifies what is not in memory: some milliseconds.
        """
        key = self._key(reference)
        self._used[key] = next(self._clock)
        served = self._held.get(key) or self._verify(key, keep=True)
        if served is None:
            raise self._refusal(reference, key)
        return served

    def dataset(self, reference: str) -> str | None:
        """Return the dataset that a version was trained on; None where it does not verify. Raises UnknownName, as
        `get`.
        """
        key = self._key(reference)
        if key not in self._slots:
            self._verify(key, keep=False)
        slot = self._slots.get(key)
        return None if slot is None else slot.dataset

    def known_dataset(self, reference: str) -> str | None:
        """Return the dataset of `name@version`; None while it was not looked at."""
        name, _, version = reference.partition("@")
        slot = self._slots.get((name, int(version)))
        return None if slot is None else slot.dataset

    def any_dataset(self, name: str) -> str | None:
        """Return the dataset of the newest version of this name that verified."""
        datasets = [(version, slot.dataset) for (model, version), slot in list(self._slots.items()) if model == name]
        return max((pair for pair in datasets if pair[1]), default=(0, None))[1]

    def dataset_of(self, reference: str) -> str | None:
        """Return the dataset of a version, or, where it may be retired, of its name; None where none is known."""
        try:
            return self.dataset(reference)
        except UnknownName:
            return self.any_dataset(reference.partition("@")[0])

    def counts_alone(self, name: str, version: int) -> bool:
        """Return whether a version's predictions are a series of their own now."""
        shelf = self._seen.shelves.get(name)
        return self._series != CHAMPIONS or (shelf is not None and shelf.champion == version)

    def _refusal(self, reference: str, key: Key) -> VerificationError:
        """Return the error of a version that is not served; where the name alone was asked for, with what could answer
        in its place.
        """
        (name, version), slot = key, self._slots.get(key)
        error = slot.error if slot and slot.error else ModelInvalid("it changed while it was looked at")
        by_name_alone = reference.partition("@")[2] in ("", CHAMPION)
        offer = way_out(name, self._sound(name, version)) if by_name_alone else {}
        instead = (
            f": nothing is served under this name; {offer['command'] or 'no other version verifies'}"
            if by_name_alone
            else ""
        )
        about = {"reason": f"{error.code}: {error.message}", "version": f"{name}@{version}", **offer}
        if isinstance(error, CertificateRevoked):
            return CertificateRevoked(
                f"model={reference[:80]}: {name}@{version} was revoked{instead}", state=Standing.REVOKED.value, **about
            )
        return ModelInvalid(f"model={reference[:80]}: does not verify, so it is not served{instead}", **about)

    def _sound(self, name: str, without: object) -> int | None:
        """Return the newest version, other than this one, that verified and is not retired."""
        shelf = self._seen.shelves[name]
        for version in reversed(shelf.versions):
            slot = self._slots.get((name, version))
            if version != without and version not in shelf.retired and slot is not None and slot.certificate:
                return version
        return None

    def _key(self, reference: str) -> Key:
        name, at, text = reference.partition("@")
        numbered = at and text != CHAMPION
        version = ((None if text.startswith("0") else whole_number(text)) or 0) if numbered else None
        shelf = self._shelf_with(name, version)
        if shelf is None:
            raise UnknownName(f"model={reference[:80]!r}: there is no such model", model=reference[:80])
        if version is None:
            version = self._champion(name, shelf)
        if version not in shelf.versions:
            raise UnknownName(f"model={reference[:80]!r}: there is no such version", model=reference[:80])
        if version in shelf.retired:
            raise UnknownName(f"model={name}@{version}: was retired, so it is not served", model=reference[:80])
        note_subject(f"{name}@{version}")
        return name, version

    def _champion(self, name: str, shelf: Shelf) -> int:
        """Return the version that the name alone means. Raises ModelInvalid, NothingServed."""
        if isinstance(shelf.champion, ModelInvalid):
            raise ModelInvalid(f"model={name}: its champion cannot be told", reason=shelf.champion.message)
        if shelf.champion is None or shelf.champion in shelf.retired:
            raise self._nothing_served(name, shelf)
        return shelf.champion

    def _shelf_with(self, name: str, version: int | None) -> Shelf | None:
        """Return the shelf of a name. Where it lacks the version, or for None a champion, look at it once more: a
        caller who was told of a new model may ask before the next look.
        """
        shelf = self._seen.shelves.get(name)
        if shelf is not None and (shelf.champion is not None if version is None else version in shelf.versions):
            return shelf
        newer = None if self._home is None else look_at(ModelStore(self._home.models), name, shelf)
        if newer is not None and newer != shelf:  # a look that began before may take it back: it is found again
            self._seen = replace(self._seen, shelves={**self._seen.shelves, name: newer})
        return newer

    def _nothing_served(self, name: str, shelf: Shelf) -> NothingServed:
        """Return the error where a name's champion was retired, or no version was ever promoted."""
        details = way_out(name, self._sound(name, None))
        why = "no version was promoted" if shelf.champion is None else f"{name}@{shelf.champion} was retired"
        state = Standing.CANDIDATE if shelf.champion is None else Standing.RETIRED
        next_step = details["command"] or "no version of it verifies"
        return NothingServed(f"model={name}: nothing is served: {why}; {next_step}", state=state.value, **details)

    # Telling

    @property
    def proven(self) -> dict[str, tuple[str, str]]:
        """Return, by reference, the sha256 of statement and model of each version that was verified by the ledger."""
        slots = ((key, slot.certificate) for key, slot in list(self._slots.items()))
        return {f"{name}@{at}": (each["statement"], each["model"]) for (name, at), each in slots if each is not None}

    @property
    def loaded(self) -> int:
        """Count the versions that have verified since they last changed, in memory or not."""
        return sum(slot.certificate is not None for slot in list(self._slots.values()))

    @property
    def refused(self) -> int:
        """Count the versions that do not verify, without those that were revoked."""
        errors = [slot.error for slot in list(self._slots.values())]
        return sum(error is not None and not isinstance(error, CertificateRevoked) for error in errors)

    @property
    def datasets(self) -> frozenset[str]:
        """Return the names of the datasets that the verified versions were learnt from."""
        return frozenset(slot.dataset for slot in list(self._slots.values()) if slot.dataset is not None)

    def versions(self, name: str) -> list[int]:
        """List the versions of a model that are not retired, ascending. UnknownName where there is no such model."""
        shelf = self._shelf_with(name, None)
        if shelf is None:
            raise UnknownName(f"model={name[:80]!r}: there is no such model", model=name[:80])
        return [version for version in shelf.versions if version not in shelf.retired]

    def to_json(self) -> list[dict[str, Any]]:
        """List every version, served or not."""
        return [
            self._line(name, version, shelf) for name, shelf in self._seen.shelves.items() for version in shelf.versions
        ]

    def _line(self, name: str, version: int, shelf: Shelf) -> dict[str, Any]:
        slot = self._slots.get((name, version))
        revoked = slot is not None and isinstance(slot.error, CertificateRevoked)
        if slot is None and self._trust is not None and self._trust.revoked:
            revoked = entry_of(Path(self._root) / name / str(version)) in self._trust.revoked
        state = standing(version, shelf.champion, version in shelf.retired, revoked)
        return line(name, version, state, slot)
