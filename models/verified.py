"""Loading a model, failing closed: every byte is read once and nothing is served that was not verified. No warn-only
mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accountant.certificate import Certificate, Policy, digest, verify
from accountant.errors import CertificateInvalid, ModelInvalid
from accountant.keys import PublicKeys
from models.bundle import Bundle, ensemble_from_bytes, read_bundle
from models.ensemble import VotingEnsemble
from models.runtime import OnnxModel

STRICT = Policy()


@dataclass(frozen=True)
class VerifiedModel:
    """A model that may be served: its certificate, its graph in a session, and its released numbers."""

    certificate: Certificate
    runtime: OnnxModel
    ensemble: VotingEnsemble
    bundle: Bundle


def load_verified(directory: Path, trust: PublicKeys, policy: Policy = STRICT) -> VerifiedModel:
    """Read a bundle once, verify certificate, proof and graph, then open it. Raises VerificationError; never warns."""
    bundle = read_bundle(directory)
    found = verify(bundle.envelope, _text(bundle.proof), bundle.onnx, trust, policy)
    if digest(bundle.ensemble) != found.statement["predicate"]["public"].get("ensemble"):
        raise ModelInvalid("ensemble.json: not the released numbers that the certificate names")
    ensemble = ensemble_from_bytes(bundle.ensemble)
    return VerifiedModel(found, OnnxModel(bundle.onnx), ensemble, bundle)


def _text(proof: bytes) -> str:
    try:
        return proof.decode("utf-8")
    except UnicodeDecodeError:
        raise CertificateInvalid("proof: must be text in UTF-8") from None
