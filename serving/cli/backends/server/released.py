"""Released models of a server: fetched, and verified here against pinned keys."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from accountant.errors import InputError, ModelInvalid
from dpserve import Client
from models.store.bundle import FILES, Bundle
from models.store.loading import verified_bundle
from serving.cli.backends.server.asking import asking
from serving.cli.backends.server.pins import pinned
from serving.cli.released.opened import Opened


def opened(name: str) -> Opened:
    """A model, verified here, its graph not opened yet. Raises UnknownName, or VerificationError; never warns."""
    with asking() as service:
        reference, bundle = fetched(service, name)
        verified = verified_bundle(bundle, pinned(service), runs=False)
    if verified.certificate.model != reference.partition("@")[0]:
        raise ModelInvalid(f"certificate: speaks of {verified.certificate.model!r}, not of {reference}")
    return Opened(reference, None, verified)


def files(name: str) -> Bundle:
    """The files of a model as they came: to be verified."""
    with asking() as service:
        return fetched(service, name)[1]


def fetched(service: Client, name: str) -> tuple[str, Bundle]:
    """`name@version`, and the files of it, not verified yet. ModelInvalid where what came is no bundle."""
    reference = str(service.model(name)["model"])
    return reference, bundle_of(service.bundle(reference))


def bundle_of(raw: bytes) -> Bundle:
    """The files of a zip file, each up to its size cap and no other. ModelInvalid."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for entry in archive.infolist():
                field, cap = FILES[entry.filename.rpartition("/")[2]]
                with archive.open(entry) as file:
                    found[field] = file.read(cap + 1)
                if len(found[field]) > cap:
                    raise ModelInvalid(f"{entry.filename[:80]}: more than {cap} bytes")
        return Bundle(**found)
    except (KeyError, TypeError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ModelInvalid(f"model: what came is not the files of one ({type(error).__name__})") from None


def grown_since(model: Opened) -> tuple[str, ...]:
    """Say how its dataset grew since its certificate was issued, as the server says."""
    with asking() as service:
        return tuple(service.model(model.reference).get("since", ()))


def worths_of(model: Opened) -> list[dict[str, Any]]:
    """What it was measured to be worth, the newest first, as the server says; `statements` are to be checked."""
    with asking() as service:
        found: list[dict[str, Any]] = service.model(model.reference)["worth"]
        return found


def statements(model: Opened) -> list[tuple[int, bytes, bytes]]:
    """The same as it was signed: the job's number, envelope and proof."""
    with asking() as service:
        found = [(each["job"], service.evaluation(each["job"])) for each in worths_of(model)]
    return [(job, as_bytes(each["envelope"]), each["proof"].encode()) for job, each in found]


def as_bytes(envelope: Any) -> bytes:
    """An envelope as a file: what is signed is its payload, which is base64."""
    return json.dumps(envelope, separators=(",", ":")).encode()


def witnessed(model: Opened) -> Bundle:
    """A server gives its own proofs alone."""
    raise InputError("witnessed: works where the home is; the server's own proof comes without --witnessed")
