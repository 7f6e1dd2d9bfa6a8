"""Sign what goes out, and check what came: every file of a folder, each with a sigstore bundle beside it.

    python deploy/release.py sign dist --key release.pem      # by `make release`
    python deploy/release.py verify dist --key release.pub.pem

A bundle holds an in-toto statement about one file, signed offline by a key of the maintainers: other tools verify it by
the public key (@sigstore/verify, openssl). `verify` needs dpserve-verify alone.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpserve_verify.errors import CertificateInvalid, DpserveError, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import fingerprint, load_public_pem

SUFFIX, PREDICATE = ".sigstore.json", "https://dpserve/release/v1"
STATEMENT = "https://in-toto.io/Statement/v1"


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files that need a bundle, by name. InputError where there is none, or a folder or a link among them."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    wrong = [path.name for path in files if path.is_symlink() or not path.is_file()]
    if wrong or not files:
        raise InputError(
            f"{folder}: must hold the files of a release, and nothing else ({', '.join(wrong) or 'empty'})"
        )
    yield from (path for path in files if not path.name.endswith(SUFFIX))


def statement_of(path: Path, version: str, commit: str) -> bytes:
    """Return the statement about a file: its digest, and of which version and commit it was made."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    body: Any = {
        "_type": STATEMENT,
        "subject": [{"name": path.name, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE,
        "predicate": {"version": version, "commit": commit},
    }
    return canonical.encode(body)


def sign(folder: Path, key: Path, version: str, commit: str) -> list[str]:
    """Write a bundle beside each file. `key`: an Ed25519 private key in PEM, as openssl makes it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner, SSlibKey

    try:
        private = load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"key={key}: cannot be read as a private key in PEM ({error})") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise InputError(f"key={key}: must be an Ed25519 key: openssl genpkey -algorithm ed25519 -out release.pem")
    public = private.public_key()
    signer = CryptoSigner(private, SSlibKey.from_crypto(public, keyid=fingerprint(public)))
    files = list(files_of(folder))
    for path in files:
        envelope = dsse.sign(statement_of(path, version, commit), signer)
        path.with_name(path.name + SUFFIX).write_bytes(dsse.to_sigstore_bundle(envelope))
    return [path.name for path in files]


def verify(folder: Path, key: Path) -> list[str]:
    """Return a line for each file, of which version it is. CertificateInvalid for the first that is not signed by this
    key, is another file than what was signed, or of another version or commit than the others; or a bundle without its
    file.
    """
    try:
        public = load_public_pem(key.read_text("ascii"))
    except (OSError, ValueError) as error:
        raise InputError(f"key={key}: cannot be read as a public key in PEM ({error})") from None
    files, keys, made = list(files_of(folder)), {fingerprint(public): public}, set[tuple[str, str]]()
    lost = {path.name for path in folder.glob(f"*{SUFFIX}")} - {path.name + SUFFIX for path in files}
    if lost or not files:
        raise CertificateInvalid(f"{folder.name}: bundles without their file: {', '.join(sorted(lost))}")
    lines = []
    for path in files:
        try:
            envelope, _ = dsse.from_sigstore_bundle(path.with_name(path.name + SUFFIX).read_bytes())
        except OSError:
            raise CertificateInvalid(f"{path.name}: has no bundle {path.name}{SUFFIX} beside it") from None
        payload = dsse.verify(dsse.spell(envelope), keys)
        stated: Any = canonical.decode_canonical(payload)
        version, commit = (str(stated.get("predicate", {}).get(name)) for name in ("version", "commit"))
        if payload != statement_of(path, version, commit):
            raise CertificateInvalid(f"{path.name}: is not the file that was signed")
        made.add((version, commit))
        lines.append(f"verified: {path.name}: dpserve {version}, commit {commit[:12]}")
    if len(made) != 1:
        raise CertificateInvalid(f"{folder.name}: files of several versions: {sorted(made)}")
    return lines


def main() -> int:
    """Run the command: 0, 2 for bad input, 4 where a file is not what was signed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("sign", "verify"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--key", type=Path, required=True, help="PEM: private to sign, public to verify")
    parser.add_argument("--version", default="", help="to sign: of what")
    parser.add_argument("--commit", default="", help="to sign: of which commit")
    asked = parser.parse_args()
    try:
        if asked.task == "verify":
            print("\n".join(verify(asked.folder, asked.key)))
        else:
            signed = sign(asked.folder, asked.key, asked.version, asked.commit)
            print("\n".join(f"signed: {name}" for name in signed))
    except DpserveError as error:
        print(f"{parser.prog}: {error.message}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
