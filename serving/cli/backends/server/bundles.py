"""Released models of a server: fetched, and verified here against pinned keys."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence

from dpserve import Client
from dpserve_verify.certificates.bundle import FILES, Bundle
from dpserve_verify.errors import InputError, ModelInvalid
from models.store.bundle import check_reference
from models.store.loading import OpenedModel, verified_bundle
from serving.cli.backends.abstract import Body, Bundles
from serving.cli.backends.server.connection import AtServer
from serving.cli.backends.server.statements import envelope_bytes


class ServerBundles(AtServer, Bundles):
    """As `Bundles` says, over REST."""

    def open(self, name: str) -> OpenedModel:
        """Return a model that was verified here."""
        with self.connection.asking() as service:
            reference, bundle = _fetch(service, name)
            verified = verified_bundle(bundle, self.connection.trusted_keys(service), runs=False)
        if verified.certificate.model != reference.partition("@")[0]:
            raise ModelInvalid(f"certificate: speaks of {verified.certificate.model!r}, not of {reference}")
        return OpenedModel(reference, None, verified)

    def read(self, name: str) -> Bundle:
        """Return the files of a model as they came, not verified."""
        with self.connection.asking() as service:
            return _fetch(service, name)[1]

    def with_witnessed_proof(self, model: OpenedModel) -> Bundle:
        """Refuse: a server gives its own proofs alone."""
        raise InputError("witnessed: works where the home is; the server's own proof comes without --witnessed")

    def growth_since(self, model: OpenedModel) -> Sequence[str]:
        """Return sentences on how its dataset grew, as the server says."""
        with self.connection.asking() as service:
            return tuple(service.model(model.reference)["since"])

    def statements(self, model: OpenedModel) -> list[Body]:
        """Return what it was measured to be worth, as the server says; `signed_statements` are to be checked."""
        with self.connection.asking() as service:
            return list(service.model(model.reference)["worth"])

    def signed_statements(self, model: OpenedModel) -> list[tuple[int, bytes, bytes]]:
        """Return the same as it was signed."""
        with self.connection.asking() as service:
            jobs = [worth["job"] for worth in service.model(model.reference)["worth"]]
            signed = [(job, service.evaluation(job)) for job in jobs]
        return [(job, envelope_bytes(body["envelope"]), body["proof"].encode()) for job, body in signed]


def _fetch(service: Client, name: str) -> tuple[str, Bundle]:
    """Return `name@version` and the files of it, not verified. Raises ModelInvalid where what came is no bundle."""
    check_reference(name)
    reference = str(service.model(name)["model"])
    return reference, bundle_of(service.bundle(reference))


def bundle_of(raw: bytes) -> Bundle:
    """Read the files of a zip file, each up to its size cap and no other. Raises ModelInvalid."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for entry in archive.infolist():
                field, cap = FILES[entry.filename.rpartition("/")[2]]
                with archive.open(entry) as file:
                    files[field] = file.read(cap + 1)
                if len(files[field]) > cap:
                    raise ModelInvalid(f"{entry.filename[:80]}: more than {cap} bytes")
        return Bundle(**files)
    except (KeyError, TypeError, zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError, zlib.error) as error:
        raise ModelInvalid(f"model: what came is not the files of one ({type(error).__name__})") from None
