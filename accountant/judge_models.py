"""Models beside the ledger, judged with it: each certificate verifies and speaks of the reservation that the ledger
holds. One that was revoked is settled: nobody accepts it, and what is wrong with it is no fault of the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from accountant.certificate import Certificate, verify
from accountant.errors import DpserveError
from accountant.keys import PublicKeys
from accountant.proofs import parse_proof
from accountant.rebuild import Findings, Head
from accountant.replay import Replay

Bundle = tuple[str, bytes, bytes, bytes]
"""A model's name, envelope, proof and ONNX bytes."""


class Models:
    """Certificates to be held against the entries as these go by."""

    def __init__(self, trust: PublicKeys, findings: Findings) -> None:
        self._trust, self._findings = trust, findings
        self._waiting: dict[int, list[tuple[str, Certificate]]] = {}

    def take(self, bundles: Iterable[Bundle]) -> list[Head]:
        """Verify each bundle; the tree heads that their proofs bring along."""
        heads = []
        for name, envelope, proof, model in bundles:
            try:
                text = proof.decode("utf-8")
                if parse_proof(text).index in self._trust.revoked:
                    continue
                found = verify(envelope, text, model, self._trust)
            except (DpserveError, UnicodeDecodeError) as error:
                self._findings.add(None, f"model {name}: {error}")
                continue
            self._waiting.setdefault(found.reservation, []).append((name, found))
            heads.append(Head(found.checkpoint_size, 1, found.root, f"the proof of model {name}"))
        return heads

    def check(self, seq: int, body: bytes, value: Mapping[str, Any]) -> None:
        """Hold entry `seq` against the certificates that say they were reserved by it."""
        for name, found in self._waiting.get(seq, ()):
            predicate, leaf = found.statement["predicate"], hashlib.sha256(b"\x00" + body).hexdigest()
            plan = [{key: part for key, part in run.items() if key != "library"} for run in predicate["mechanisms"]]
            if predicate["ledger"]["leaf"] != leaf or plan != value.get("plan"):
                self._findings.add(None, f"model {name}: its certificate is not about what entry {seq} reserved")

    def check_end(self, replay: Replay) -> None:
        """After the last entry: what was issued, by whom, and whether it stands."""
        for seq, waiting in self._waiting.items():
            job = replay.jobs.get(seq)
            for name, found in waiting:
                if found.issued in replay.keys.revocations:  # by a ledger that knows more than the pinned file
                    continue
                if job is None or job.issued != found.issued:
                    self._findings.add(None, f"model {name}: entry {found.issued} is not what job {seq} was issued as")
                if not replay.keys.issuer_keys(found.issued).keys() >= set(found.issuers):
                    self._findings.add(None, f"model {name}: signed by a key that may not speak for its entry")
