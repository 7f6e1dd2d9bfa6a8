"""What a serving process saw last and verified, in a file of this machine: where the ledger's database is away, one
that begins predicts by it as those do that began before, and no longer than they.

The log's key signs it. Its time is seconds since this machine was started, which no clock that is set changes: a file
of before that, or of another machine, is none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature

from accountant.access.grants import Access, Grant
from accountant.access.tokens import Limits, Token
from accountant.home import Home, local, mark
from accountant.keys.key_exchange import public_half
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.errors import DpserveError, ModelInvalid
from dpserve_verify.keys.dsse import pae, parse
from dpserve_verify.keys.trust import PublicKeys, load_public_pem
from dpserve_verify.system.files import PRIVATE, locked, replace_unsynced
from models.store.loading import VerifiedModel, load_verified
from serving.process.tokens import Bearer, Rights

if TYPE_CHECKING:
    from serving.process.registry import Registry

KIND = "application/vnd.dpserve.last-look+json"
FILE = "last-look"  # in the folder `run` of this machine
BOOT = Path("/proc/sys/kernel/random/boot_id")
EVERY_SECONDS = 4.0  # a file that another process wrote since then is new enough

Proven = Mapping[str, tuple[str, str]]  # name@version -> sha256 of its statement and of its model's file


@dataclass(frozen=True)
class LastLook:
    """What was seen at `seen`, in seconds of `time.monotonic` on this machine: who may do what, and which models were
    verified against the ledger. `path`: the home's folder.
    """

    path: Path
    seen: float
    rights: Rights
    proven: Proven

    @property
    def models(self) -> Path:
        """Return the folder of released models."""
        return self.path / "models"

    @property
    def trust(self) -> PublicKeys:
        """Return what an auditor pins."""
        return self.rights.trust

    def load(self, folder: Path, name: str) -> VerifiedModel:
        """Verify a model as it was then: ModelInvalid where it is another, or was not there."""
        verified = load_verified(folder, self.trust)
        found = digest(parse(verified.bundle.envelope).payload), digest(verified.bundle.onnx)
        if verified.certificate.model != name or self.proven.get(f"{name}@{folder.name}") != found:
            raise ModelInvalid("model: was not verified against the ledger before its database was away")
        return verified


def keep(home: Home, rights: Rights, registry: Registry, seen: float) -> None:
    """Write what was seen now, unless another process of this machine has this moment; nothing where it cannot be."""
    with suppress(DpserveError, OSError):
        boot, path = _boot(), _file(home.path)
        is_due = not path.exists() or abs(time.time() - path.stat().st_mtime) >= EVERY_SECONDS
        if boot is not None and is_due:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            payload = json.dumps(_describe(rights, registry) | {"boot": boot, "seen": seen}).encode()
            signature = bytes.fromhex(home.keys.signer("log").sign(pae(KIND, payload)).signature)
            with locked(path.with_suffix(".lock"), wait=False):
                replace_unsynced(path, signature + payload, PRIVATE)


def _describe(rights: Rights, registry: Registry) -> dict[str, Any]:
    bearers = [(each.token, each.access) for each in rights.bearers.values()]
    return {
        "bearers": [
            {
                "token": asdict(token),
                "principal": access.principal,
                "grants": [asdict(each) for each in access.grants],
            }
            for token, access in bearers
        ],
        "families": {name: sorted(rights.families(name)) for name in registry.datasets},
        "proven": registry.proven,
        "trust": rights.trust.to_json().decode(),
        "until": rights.until,
    }


def read(path: Path, seconds: float) -> LastLook | None:
    """Return what was seen last for the home at `path`; None where that is longer ago than `seconds`, was not signed by
    its log's key, or is not of this machine since it was started.
    """
    try:
        raw = _file(path).read_bytes()
        key: Any = load_public_pem(public_half(path / "keys", "log"))
        key.verify(raw[:64], pae(KIND, raw[64:]))
        body = json.loads(raw[64:])
        is_whole = mark(path).exists()  # or the ledger would not be served by anybody
        if not is_whole or body["boot"] != _boot() or not 0 <= time.monotonic() - body["seen"] <= seconds:
            return None
        return LastLook(path, body["seen"], _rights(body), {name: tuple(pair) for name, pair in body["proven"].items()})
    except (DpserveError, OSError, InvalidSignature, ValueError, KeyError, TypeError):  # or another version's
        return None


def _rights(body: Mapping[str, Any]) -> Rights:
    named = {name: frozenset(families) for name, families in body["families"].items()}

    def families(dataset: str) -> frozenset[str]:
        return named.get(dataset, frozenset())

    bearers = {}
    for each in body["bearers"]:
        about = {**each["token"], "scopes": tuple(each["token"]["scopes"]), "limits": Limits(**each["token"]["limits"])}
        access = Access(each["principal"], tuple(Grant(**grant) for grant in each["grants"]), families)
        bearers[about["digest"]] = Bearer(Token(**about), access)
    trust = PublicKeys.from_json(body["trust"].encode())
    return Rights(bearers, [], trust, (0, b""), body["until"], families)


def _boot() -> str | None:
    """Return the number of this machine's start; None where the system tells none, and nothing is kept."""
    with suppress(OSError):
        return BOOT.read_text().strip()
    return None


def _file(home: Path) -> Path:
    return local(home) / "run" / FILE
