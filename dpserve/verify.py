"""The verifier, by its public name: what `dpserve_verify` alone brings, with cryptography and the standard library.

from dpserve.verify import PublicKeys, Policy, read_bundle, verify_bundle

keys = PublicKeys.from_json(Path("trust.json").read_bytes())
certificate = verify_bundle(read_bundle(Path("adult-model")), keys, Policy())
"""

from dpserve_verify.audit.folders import audit_folder
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.certificates.bundle import Bundle, read_bundle, verify_bundle
from dpserve_verify.certificates.certificate import Certificate, verify
from dpserve_verify.certificates.policy import Policy, read_policy
from dpserve_verify.errors import VerificationError
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.cosignature import require_quorum
from dpserve_verify.log.notes import Checkpoint
from dpserve_verify.log.seen_checkpoints import verify_head

__all__ = [
    "Bundle",
    "Certificate",
    "Checkpoint",
    "Policy",
    "PublicKeys",
    "Report",
    "VerificationError",
    "audit_folder",
    "read_bundle",
    "read_policy",
    "require_quorum",
    "verify",
    "verify_bundle",
    "verify_head",
]
