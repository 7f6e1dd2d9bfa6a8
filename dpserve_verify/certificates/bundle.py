"""A model's bundle: one folder that travels, with its certificate. All of it but the graph is verified here: whoever
runs the model looks at the graph before it is opened.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from dpserve_verify.certificates.certificate import Certificate, digest, verify
from dpserve_verify.certificates.policy import Policy
from dpserve_verify.errors import CertificateInvalid, ModelInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.system.files import open_no_link

FILES = {  # file name -> field of Bundle and most bytes
    "model.onnx": ("onnx", 64 << 20),
    "model.onnx.dsse.json": ("envelope", 4 << 20),
    "model.onnx.sigstore.json": ("sigstore", 8 << 20),
    "model.onnx.tlog-proof": ("proof", 1 << 20),
    "ensemble.json": ("ensemble", 64 << 20),
    "card.md": ("card", 4 << 20),
}


@dataclass(frozen=True)
class Bundle:
    """The bytes of a bundle's files, in the order of `FILES`."""

    onnx: bytes
    envelope: bytes
    sigstore: bytes
    proof: bytes
    ensemble: bytes
    card: bytes


def read_bundle(directory: Path) -> Bundle:
    """Read each file of a bundle once, from a regular file inside `directory`, up to its size cap. ModelInvalid names
    the file that is not so.
    """
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ModelInvalid(f"{directory}: not a bundle folder ({error.strerror})") from error
    try:
        return Bundle(**{field: _read(folder, name, cap) for name, (field, cap) in FILES.items()})
    finally:
        os.close(folder)


def read_proof(directory: Path) -> bytes:
    """Read a bundle's proof alone; empty, which proves nothing, where it cannot be read."""
    ((name, cap),) = [(name, cap) for name, (field, cap) in FILES.items() if field == "proof"]
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return b""
    try:
        return _read(folder, name, cap)
    except ModelInvalid:
        return b""
    finally:
        os.close(folder)


def verify_bundle(bundle: Bundle, trust: PublicKeys, policy: Policy) -> Certificate:
    """Verify the certificate of a bundle, and that its files are those that the certificate names.

    Raises:
        VerificationError: the first thing that is wrong.
    """
    try:
        proof = bundle.proof.decode("utf-8")
    except UnicodeDecodeError:
        raise CertificateInvalid("proof: must be text in UTF-8") from None
    certificate = verify(bundle.envelope, proof, bundle.onnx, trust, policy)
    check_sigstore(bundle)
    if digest(bundle.ensemble) != certificate.form.public.ensemble:
        raise ModelInvalid("ensemble.json: not the released numbers that the certificate names")
    return certificate


def check_sigstore(bundle: Bundle) -> None:
    """Raise CertificateInvalid unless the Sigstore form wraps exactly the verified envelope: other tools read that
    one.
    """
    envelope, hint = dsse.from_sigstore_bundle(bundle.sigstore)
    if envelope != dsse.parse(bundle.envelope) or hint != envelope.signatures[0][0]:
        raise CertificateInvalid("sigstore bundle: holds another envelope, or names another key")


def _read(folder: int, name: str, cap: int) -> bytes:
    try:
        descriptor = open_no_link(name, folder)
    except OSError as error:
        raise ModelInvalid(f"{name}: cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelInvalid(f"{name}: must be a regular file")
    with open(descriptor, "rb") as file:
        content = file.read(cap + 1)
    if len(content) > cap:
        raise ModelInvalid(f"{name}: more than {cap} bytes")
    return content
