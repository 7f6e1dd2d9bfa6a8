"""An aggregator's folder: aggregator.toml (who is believed, what is agreed to), its private keys, and its ledger.

url = "https://campaigns.example"    # where campaigns are
trust = "trust.json"                 # the pinned keys of who asks
ca = "ca.pem"                        # of the server's certificate; the system's when left out
witnesses = "witnesses.policy"       # whose cosignatures the log must show (C2SP tlog-policy); nobody's when left out

[policy]
largest_epsilon = "1"                # of one campaign; noise is never less than that asks for
largest_delta = "0.000001"
least_owners = 100                   # in a sum

With DPSERVE_AGGREGATOR_PASSPHRASE set, `init` encrypts the private keys, and every later command needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from accountant.keys.key_files import passphrase_from_environment, private_pem, read_pem
from dpserve_verify.errors import BudgetRefused, InputError, KeyInvalid
from dpserve_verify.formats.canonical import encode
from dpserve_verify.system.files import PRIVATE, read_beginning, write_new
from local.campaign.asking import Place
from local.campaign.settings_files import read_place, read_policy, read_toml
from local.reports.shared import Aggregator, ForAggregators

SETTINGS, PUBLIC, SEAL, SIGN, LEDGER = "aggregator.toml", "aggregator.json", "seal.pem", "sign.pem", "aggregator.db"
PASSPHRASE = "DPSERVE_AGGREGATOR_PASSPHRASE"
TEMPLATE = """\
url = "{url}"
trust = "trust.json"

[policy]
largest_epsilon = "1"
largest_delta = "0.000001"
least_owners = 100
"""


@dataclass(frozen=True)
class Policy:
    """What an aggregator agrees to."""

    largest_epsilon: Decimal
    largest_delta: Decimal
    least_owners: int

    def check(self, definition: ForAggregators) -> None:
        """Raise BudgetRefused where the campaign's noise would be less than the policy asks for; InputError where its
        sum may be of too few.
        """
        for name in ("epsilon", "delta"):
            most = getattr(self, f"largest_{name}")
            if getattr(definition, name) > most:
                raise BudgetRefused(f"{name}={getattr(definition, name)}: your policy adds noise for at most {most}")
        if definition.least < self.least_owners:
            raise InputError(f"least={definition.least}: your policy wants at least {self.least_owners} in a sum")


@dataclass(frozen=True)
class Settings(Place):
    """An aggregator's folder, read."""

    folder: Path
    policy: Policy

    @property
    def ledger(self) -> Path:
        """Return the path of the ledger: what this aggregator has opened, charged and answered."""
        return self.folder / LEDGER

    @cached_property
    def seal(self) -> X25519PrivateKey:
        """Read the private key that opens the shares for this aggregator. KeyInvalid where it cannot be read."""
        key = _private(self.folder / SEAL)
        if not isinstance(key, X25519PrivateKey):
            raise KeyInvalid(f"{SEAL}: must be an X25519 key")
        return key

    @cached_property
    def sign(self) -> Ed25519PrivateKey:
        """Read the private key that signs this aggregator's answers. KeyInvalid where it cannot be read."""
        key = _private(self.folder / SIGN)
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyInvalid(f"{SIGN}: must be an Ed25519 key")
        return key

    def public(self, name: str) -> Aggregator:
        """Return the public half of its keys."""
        keys = (self.seal.public_key(), self.sign.public_key())
        return Aggregator(name, *(key.public_bytes_raw().hex() for key in keys))


def create_folder(folder: Path, name: str, url: str) -> Aggregator:
    """Create a folder with keys and settings; `aggregator.json` is what is public of it. InputError where it is
    there, KeyInvalid where the passphrase is empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"folder={folder}: has files in it; an aggregator needs one of its own")
    passphrase = passphrase_from_environment(PASSPHRASE)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seal, sign = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = Aggregator(name, *(key.public_key().public_bytes_raw().hex() for key in (seal, sign)))
    for file, key in ((SEAL, seal), (SIGN, sign)):
        write_new(folder / file, private_pem(key, passphrase), PRIVATE)
    write_new(folder / PUBLIC, encode(public.to_json()) + b"\n", 0o644)
    write_new(folder / SETTINGS, TEMPLATE.format(url=url).encode(), PRIVATE)
    return public


def read_settings(folder: Path) -> Settings:
    """Read aggregator.toml. InputError where the folder has no settings, or they say something that is not
    understood.
    """
    path = folder / SETTINGS
    top = read_toml(path, {}, {})
    policy = read_policy(Policy, top["policy"])
    return Settings(**read_place(path, top, folder / LEDGER), folder=folder, policy=policy)


def _private(path: Path) -> object:
    try:
        if path.stat().st_mode & 0o077:
            raise KeyInvalid(f"{path.name}: may be read by others; it must be yours alone")
        raw = read_beginning(path, 1 << 12)
    except OSError as error:
        raise KeyInvalid(f"{path.name}: cannot be read ({error.strerror})") from None
    return read_pem(raw, passphrase_from_environment(PASSPHRASE), path.name, PASSPHRASE)
