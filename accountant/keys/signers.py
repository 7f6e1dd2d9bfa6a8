"""Where the issuer's key may be kept, named by the signer URIs of securesystemslib (docs/reference/home.md).

    (empty), file:                 issuer.pem among our own keys (Ed25519)
    none                           not here: this process issues nothing (`accountant.keys.opening`)
    file:/run/keys/issuer.pem      a file of its own (Ed25519 or ECDSA on P-256)
    hsm:2?label=dpserve            PKCS#11, library in PYKCS11LIB, PIN in DPSERVE_HSM_PIN (ECDSA on P-256)
    awskms:, gcpkms:, azurekms:    cloud key services (ECDSA on P-256; none of them signs Ed25519)
    hv:issuer/1                    HashiCorp Vault (Ed25519 alone)

The log's key is always a file: C2SP checkpoints know Ed25519 alone, and the log signs at every entry.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from securesystemslib.signer import (
    AWSSigner,
    AzureSigner,
    GCPSigner,
    HSMSigner,
    Key,
    SecretsHandler,
    Signature,
    Signer,
    SSlibKey,
    VaultSigner,
)

from accountant.keys.key_files import in_keys, is_absent, load_private, passphrase_from_environment, read_file
from accountant.keys.private_keys import SigningKey, crypto_signer
from dpserve_verify.errors import DpserveError, InputError, KeyInvalid
from dpserve_verify.keys.trust import PublicKey, fingerprint, load_public_pem, public_pem
from dpserve_verify.keys.verifier_keys import ed25519_key

PIN_VARIABLE = "DPSERVE_HSM_PIN"
SCHEMES = ("file", "hsm", "awskms", "gcpkms", "azurekms", "hv")
_PROBE = b"dpserve: is this the issuer's key?"
T = TypeVar("T")


class Elsewhere(Signer):
    """A signer outside this process, whose errors are of many kinds: here they are all KeyInvalid."""

    def __init__(self, uri: str, signer: Signer, public_key: SSlibKey) -> None:
        self._uri, self._signer, self._public_key = uri, signer, public_key

    @property
    def public_key(self) -> SSlibKey:
        """Return the public key, whose keyid is its fingerprint."""
        return self._public_key

    def sign(self, payload: bytes) -> Signature:
        """Sign `payload` where the key is kept. KeyInvalid where that cannot be reached or refuses."""
        signature = _attempt(self._uri, lambda: self._signer.sign(payload))
        return Signature(self._public_key.keyid, signature.signature)

    @classmethod
    def from_priv_key_uri(
        cls, priv_key_uri: str, public_key: Key, secrets_handler: SecretsHandler | None = None
    ) -> Elsewhere:
        """Open a signer as securesystemslib does, with its errors made KeyInvalid."""
        if not isinstance(public_key, SSlibKey):
            raise KeyInvalid("public_key: must be Ed25519 or ECDSA on P-256")
        signer = _attempt(priv_key_uri, lambda: Signer.from_priv_key_uri(priv_key_uri, public_key, secrets_handler))
        return cls(priv_key_uri, signer, public_key)


def check_uri(uri: str) -> None:
    """Raise InputError unless dpserve knows what to do with the URI."""
    if is_absent(uri):
        raise InputError("issuer_key=none: a home is made, and its issuer's key changed, where that key is")
    if uri and uri.partition(":")[0] not in SCHEMES:
        raise InputError(f"issuer_key={uri!r:.80}: must be a URI of one of {', '.join(SCHEMES)}")
    if uri.startswith("file:") and not in_keys(uri) and not Path(uri.removeprefix("file:")).is_absolute():
        raise InputError(f"issuer_key={uri!r:.80}: must name its file from the root")


def import_key(uri: str) -> SigningKey:
    """Import the key that a URI names: fetch its public half and let it sign a probe. KeyInvalid."""
    check_uri(uri)
    if uri.startswith("file:"):
        return _probe(uri, _from_file(uri))
    key = _attempt(uri, lambda: _IMPORTERS[uri.partition(":")[0]](uri))
    if not isinstance(key, SSlibKey) or key.scheme not in ("ed25519", "ecdsa-sha2-nistp256"):
        raise KeyInvalid(f"issuer_key={uri}: must be Ed25519 or ECDSA on P-256")
    raw = key.keyval["public"]
    ed25519 = key.scheme == "ed25519"
    return open_key(uri, ed25519_key(bytes.fromhex(raw)) if ed25519 else load_public_pem(raw))


def open_key(uri: str, public: PublicKey) -> SigningKey:
    """Open the key that a URI names and let it sign a probe: it must be the private half of `public`. KeyInvalid."""
    check_uri(uri)
    if uri.startswith("file:"):
        key = _from_file(uri)
        if key.public != public:
            raise KeyInvalid(f"issuer_key={uri}: is {key.keyid}, must be {fingerprint(public)}")
        return _probe(uri, key)
    ours = SSlibKey.from_crypto(public, keyid=fingerprint(public))
    return _probe(uri, SigningKey(public, lambda: Elsewhere.from_priv_key_uri(uri, ours, _pin), elsewhere=True))


def _from_file(uri: str) -> SigningKey:
    name = uri.removeprefix("file:")
    private = load_private(read_file(None, name, 0o077, mounted=True), passphrase_from_environment(), name)
    public = load_public_pem(public_pem(private.public_key()), name)
    return SigningKey(public, lambda: crypto_signer(private, public), elsewhere=True)


def _probe(uri: str, key: SigningKey) -> SigningKey:
    signature = bytes.fromhex(key.signer.sign(_PROBE).signature)
    try:
        if isinstance(key.public, Ed25519PublicKey):
            key.public.verify(signature, _PROBE)
        else:
            key.public.verify(signature, _PROBE, ECDSA(SHA256()))
    except InvalidSignature as error:
        raise KeyInvalid(f"issuer_key={uri}: does not sign by {key.keyid}, the key that was imported") from error
    return key


def _pin(what: str) -> str:
    """Return the PIN, from the environment and from nowhere else."""
    pin = os.environ.get(PIN_VARIABLE)
    if not pin:
        raise KeyInvalid(f"{PIN_VARIABLE}: must hold the token's {what}")
    return pin


def _import_hsm(uri: str) -> Key:
    parts = urlsplit(uri)
    number = int(parts.path) if parts.path else None
    return HSMSigner.import_(number, dict(parse_qsl(parts.query)).get("label"), _pin)[1]


def _import_azure(uri: str) -> Key:
    """Import azurekms://VAULT.vault.azure.net/keys/NAME/VERSION"""
    parts = urlsplit(uri)
    return AzureSigner.import_((parts.hostname or "").partition(".")[0], parts.path.split("/")[2])[1]


def _import_vault(uri: str) -> Key:
    """Import hv:NAME/VERSION"""
    newest_uri, key = VaultSigner.import_(urlsplit(uri).path.partition("/")[0])
    if newest_uri != uri:
        raise ValueError(f"Vault's newest version of this key is {newest_uri}")
    return key


_IMPORTERS: dict[str, Callable[[str], Key]] = {
    "hsm": _import_hsm,
    "awskms": lambda uri: AWSSigner.import_(urlsplit(uri).path)[1],
    "gcpkms": lambda uri: GCPSigner.import_(urlsplit(uri).path)[1],
    "azurekms": _import_azure,
    "hv": _import_vault,
}


def _attempt(uri: str, call: Callable[[], T]) -> T:
    """Call securesystemslib, which passes on whatever the libraries below it raise."""
    try:
        return call()
    except DpserveError:
        raise
    except Exception as error:
        raise KeyInvalid(f"issuer_key={uri}: {type(error).__name__}: {error!s:.300}") from error
