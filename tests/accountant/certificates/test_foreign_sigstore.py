"""The Sigstore form of a certificate, verified by sigstore's own JavaScript, which shares no code with ours."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import npm
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from expected_verdicts import FOLDER, accepts, concerning, trust_of
from offices import Office, office, public_of
from securesystemslib.signer import CryptoSigner, SSlibKey
from stated import stated

from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import fingerprint, public_pem

pytestmark = [pytest.mark.slow, pytest.mark.system("node", "npm")]
NODE = Path(__file__).resolve().parents[2] / "node"

OFFICE, FILED = office()
HINT = OFFICE.trust.issuers[0].keyid
BUNDLE = dsse.to_sigstore_bundle(FILED.envelope, HINT)


@pytest.fixture(scope="module")
def checker(tmp_path_factory) -> Path:
    """The checker beside its packages, whose digests the lock file pins."""
    return npm.install(NODE, tmp_path_factory.mktemp("node"))


def check(checker: Path, bundle: bytes, onnx: bytes = FILED.onnx, hint: str = HINT, pem: str | None = None):
    (checker / "bundle.json").write_bytes(bundle)
    (checker / "model.onnx").write_bytes(onnx)
    (checker / "key.pem").write_text(pem or public_of(OFFICE.issuer))
    command = ["node", "verify.mjs", "bundle.json", "model.onnx", f"{hint}=key.pem"]
    return subprocess.run(command, cwd=checker, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_sigstore_accepts_ours(checker):
    done = check(checker, BUNDLE)
    assert done.returncode == 0, done.stderr
    claim = json.loads(FILED.payload)["predicate"]["claim"]
    assert json.loads(done.stdout) == {"model": "adult", "epsilon": claim["epsilon"]}


def test_sigstore_accepts_statements_of_worth(checker):
    """In the form that certificates have; of another model, or with a figure changed, it refuses them."""
    home, found, onnx = stated()
    envelope, _ = found["worth"]
    keyid = dsse.parse(envelope).signatures[0][0]
    pem = next(each.pem for each in home.trust.issuers if each.keyid == keyid)
    bundle = dsse.to_sigstore_bundle(envelope, keyid)
    done = check(checker, bundle, onnx, keyid, pem)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"model": "adult", "epsilon": "0.1"}
    assert check(checker, bundle, onnx + b" ", keyid, pem).returncode == 1
    better = json.loads(bundle)
    payload = dsse.parse(envelope).payload.replace(b'"better":', b'"bitter":')
    better["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    assert check(checker, json.dumps(better).encode(), onnx, keyid, pem).returncode == 1


def test_sigstore_accepts_a_key_on_p256(checker):
    private = ec.derive_private_key(12345, ec.SECP256R1())
    keyid = fingerprint(private.public_key())
    signer = CryptoSigner(private, SSlibKey.from_crypto(private.public_key(), keyid=keyid))
    bundle = dsse.to_sigstore_bundle(dsse.sign(FILED.payload, signer), keyid)
    done = check(checker, bundle, hint=keyid, pem=public_pem(private.public_key()))
    assert done.returncode == 0, done.stderr


def changed(**fields) -> bytes:
    value = json.loads(BUNDLE)
    value["dsseEnvelope"] |= fields
    return json.dumps(value).encode()


OTHER = FILED.payload.replace(b'"add-remove"', b'"replace-one"')
SIGNATURE = json.loads(FILED.envelope)["signatures"][0]
TAMPERED = {
    "another statement": changed(payload=base64.b64encode(OTHER).decode()),
    "another payload type": changed(payloadType="application/json"),
    "another signature": changed(signatures=[{**SIGNATURE, "sig": base64.b64encode(bytes(64)).decode()}]),
    "no signature": changed(signatures=[]),
    "signed by the log key": dsse.to_sigstore_bundle(OFFICE.sign(FILED.payload, key=OFFICE.log), HINT),
    "another hint": dsse.to_sigstore_bundle(FILED.envelope, "SHA256:other"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_sigstore_refuses_what_was_tampered_with(checker, what):
    assert FILED.payload != OTHER
    done = check(checker, TAMPERED[what])
    assert done.returncode != 0
    assert "Error" in done.stderr


def test_the_digest_is_compared(checker):
    done = check(checker, BUNDLE, onnx=b"another model")
    assert done.returncode != 0
    assert "not about this model" in done.stderr
    other = Office().issue(b"another model")
    done = check(checker, dsse.to_sigstore_bundle(other.envelope, HINT))
    assert "not about this model" in done.stderr


def test_another_key_is_refused(checker):
    done = check(checker, BUNDLE, pem=public_of(77))
    assert done.returncode != 0
    assert "signature verification failed" in done.stderr


@pytest.mark.slow
def test_bundles_of_the_vectors(checker):
    """It judges the signature and whose file it is, and nothing else."""
    for name in concerning("bundle", "signature"):
        (issuer,), folder = trust_of(name).issuers, FOLDER / name
        bundle, onnx = ((folder / each).read_bytes() for each in ("model.onnx.sigstore.json", "model.onnx"))
        done = check(checker, bundle, onnx, issuer.keyid, issuer.pem)
        assert (done.returncode == 0) == accepts(name, "signature", "subject"), (name, done.stderr)
