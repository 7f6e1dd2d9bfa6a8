"""Trust files made otherwise than a home makes its own: from keys alone, from what an auditor has read."""

from __future__ import annotations

from accountant.keys.private_keys import KeyStore
from dpserve_verify.audit.judge_models import Models
from dpserve_verify.audit.tree_of_entries import Findings
from dpserve_verify.entries.keys import KeyRing
from dpserve_verify.keys.trust import ROLES, IssuerKey, LogKey, PublicKeys, public_pem


def public_keys(store: KeyStore, origin: str) -> PublicKeys:
    """The trust file's content for these keys and a new ledger, the issuer's valid from the first entry on."""
    issuer, log = (public_pem(store.public_key(role)) for role in ROLES)
    return PublicKeys(origin, (IssuerKey(issuer),), log)


def followed(ring: KeyRing) -> PublicKeys:
    """What the entries say should be pinned from here on: so an auditor gets from an old file to a new one."""
    issuers = tuple(IssuerKey(key.pem, key.first, key.until) for key in ring.issuers.values())
    logs = tuple(LogKey(key.pem, key.first, key.until) for key in ring.logs.values())
    return PublicKeys.of(ring.trust.origin, issuers, logs, frozenset(ring.revocations))


def audit_models(bundles, trust: PublicKeys) -> tuple[str, ...]:
    """Problems of certificates alone, without a ledger at hand."""
    findings = Findings()
    Models(trust, findings).take(bundles)
    return tuple(problem for _, problem in findings.found)
