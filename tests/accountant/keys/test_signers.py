"""Issuer keys that are kept elsewhere: a file of its own, a PKCS#11 token, cloud services; and their absence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import ledgers
import pytest
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from ledgers import ROOT, copy, place
from pages import blocks
from securesystemslib.signer import SIGNER_FOR_URI_SCHEME, CryptoSigner, Signature, SSlibKey

from accountant.access import key_life
from accountant.home import Home
from accountant.keys import signers
from accountant.keys.key_files import PASSPHRASE_VARIABLE
from accountant.keys.private_keys import SigningKey
from accountant.keys.signers import PIN_VARIABLE, import_key, open_key
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.errors import CertificateInvalid, InputError, KeyInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys, fingerprint, public_pem

WHY = ("test", "a drill")
PIN = "13579"
LIBRARIES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so")


def write(path: Path, private, secret: bytes | None = None) -> str:
    """A private key's file; its URI."""
    encryption = pkix.NoEncryption() if secret is None else pkix.BestAvailableEncryption(secret)
    path.write_bytes(private.private_bytes(pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8, encryption))
    path.chmod(0o600)
    return f"file:{path}"


def p256() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


KINDS = {"Ed25519": Ed25519PrivateKey.generate, "P-256": p256}


def signs(home: Home) -> SigningKey:
    """The home's issuer, which has signed an envelope that its own trust verifies."""
    payload = b'{"any":"statement"}'
    keys = home.trust.issuer_keys(home.ledger.log.size())
    assert dsse.verify(dsse.sign(payload, home.keys.signer("issuer")), keys) == payload
    return home.keys.key("issuer")


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_in_a_file_of_its_own(tmp_path, kind):
    private = KINDS[kind]()
    uri = write(tmp_path / "issuer.pem", private)
    environment = place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": uri}
    home = Home.init(environment)
    for found in (home, Home.open(environment)):
        assert signs(found).keyid == fingerprint(private.public_key())
        assert found.keys.key("issuer").elsewhere
    assert sorted(file.name for file in (home.path / "keys").glob("*.pem")) == [
        "issuer.pub.pem",
        "log.pem",
        "log.pub.pem",
    ]
    assert home.ledger.log.entry(0).value["issuer"] == public_pem(private.public_key())


def test_a_home_whose_issuer_is_elsewhere_does_not_open_without_it(tmp_path):
    uri = write(tmp_path / "issuer.pem", p256())
    other = write(tmp_path / "other.pem", p256())
    environment = place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": uri}
    Home.init(environment)
    with pytest.raises(KeyInvalid, match="say in DPSERVE_ISSUER_KEY where"):
        Home.open(place(tmp_path / "home"))
    with pytest.raises(KeyInvalid, match="other.pem: is SHA256:"):
        Home.open(environment | {"DPSERVE_ISSUER_KEY": other})
    (tmp_path / "issuer.pem").chmod(0o640)
    with pytest.raises(KeyInvalid, match="mode=0640"):
        Home.open(environment)
    (tmp_path / "issuer.pem").unlink()
    with pytest.raises(KeyInvalid, match="must be a readable file"):
        Home.open(environment)


def test_a_setting_that_names_another_key_than_the_ledger_does(tmp_path):
    Home.init(place(tmp_path / "home"))
    uri = write(tmp_path / "issuer.pem", p256())
    with pytest.raises(KeyInvalid, match=r"is SHA256:.*, must be SHA256:"):
        Home.open(place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": uri})
    assert signs(Home.open(place(tmp_path / "home"))).elsewhere is False


def test_rotation_to_elsewhere_and_back(tmp_path):
    home = Home.init(place(tmp_path / "home"))
    pinned, uri = home.trust, write(tmp_path / "issuer.pem", p256())
    environment = place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": uri}
    key_life.rotate(home, "issuer", *WHY, issuer_key=uri)
    assert not (home.path / "keys" / "issuer.pem").exists()
    for found in (home, Home.open(environment)):
        assert signs(found).elsewhere
    with pytest.raises(InputError, match="must name the key to come"):
        key_life.rotate(home, "issuer", *WHY)
    with pytest.raises(InputError, match="must name the key to come"):
        key_life.mark_compromised(home, home.keys.key("issuer").keyid, 0, *WHY)
    key_life.rotate(home, "issuer", *WHY, issuer_key="file:")
    assert signs(Home.open(place(home.path))).elsewhere is False
    with pytest.raises(KeyInvalid, match="is SHA256:"):
        Home.open(environment)
    assert home.trust.continues(pinned)
    with pytest.raises(InputError, match="the log's key is a file"):
        key_life.rotate(home, "log", *WHY, issuer_key=uri)


def test_a_cut_between_the_entry_and_the_files(tmp_path, monkeypatch):
    home = Home.init(place(tmp_path / "home"))
    uri = write(tmp_path / "issuer.pem", p256())
    with monkeypatch.context() as cut:
        cut.setattr(key_life, "_put_in_place", lambda *_: None)
        key_life.rotate(home, "issuer", *WHY, issuer_key=uri)
    assert (home.path / "keys" / "issuer.pem").exists()
    with pytest.raises(KeyInvalid, match="not the ledger's issuer key"):
        Home.open(place(home.path))
    environment = place(home.path) | {"DPSERVE_ISSUER_KEY": uri}
    assert signs(Home.open(environment)).elsewhere
    assert not (home.path / "keys" / "issuer.pem").exists()
    signs(Home.open(environment))


def test_a_first_start_that_was_cut_between_keys_and_ledger(tmp_path):
    uri = write(tmp_path / "issuer.pem", p256())
    environment = place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": uri}
    Home.init(environment)
    for file in (tmp_path / "home").iterdir():
        if file.is_file():
            file.unlink()
    (tmp_path / "home" / "keys" / "high-water.json").unlink()
    assert signs(Home.open(environment)).elsewhere


def test_an_encrypted_file(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "correct horse")
    uri = write(tmp_path / "issuer.pem", p256(), b"correct horse")
    environment = place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": uri}
    signs(Home.init(environment))
    signs(Home.open(environment))


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("gnupg:abc", "must be a URI of one of file, hsm"),
        ("file2:/x.pem", "must be a URI of one of file, hsm"),
        ("nonsense", "must be a URI of one of file, hsm"),
        ("file:relative.pem", "must name its file from the root"),
    ],
)
def test_uris_that_dpserve_does_not_know(tmp_path, uri, problem):
    with pytest.raises(InputError, match=problem):
        Home.init(place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": uri})
    assert not (tmp_path / "home" / "keys").exists()


@pytest.mark.parametrize("private", [ec.generate_private_key(ec.SECP384R1())])
def test_kinds_of_key_that_verifiers_do_not_know(tmp_path, private):
    with pytest.raises(KeyInvalid, match="P-256"):
        import_key(write(tmp_path / "issuer.pem", private))


@pytest.mark.parametrize(
    "uri", ["awskms:alias/x", "gcpkms:projects/x", "azurekms://v.vault.azure.net/keys/n/1", "hv:x/1"]
)
def test_services_that_cannot_be_reached_or_whose_library_is_missing(monkeypatch, uri):
    for name in [name for name in os.environ if name.startswith(("AWS_", "VAULT_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    with pytest.raises(KeyInvalid, match=f"issuer_key={uri.split('?')[0]}"):
        import_key(uri)


class Service:
    """A key service in this process: what AWS does for us, without AWS."""

    def __init__(self, private) -> None:
        self.private, self.down = private, False

    def import_(self, name):
        return f"awskms:{name}", SSlibKey.from_crypto(self.private.public_key())

    def from_priv_key_uri(self, uri, public_key, handler):
        outer = self

        class Remote(CryptoSigner):
            def __init__(self) -> None:
                self._public_key = public_key

            def sign(self, payload):
                if outer.down:
                    raise ConnectionError("the service does not answer")
                signature = outer.private.sign(payload, ec.ECDSA(SHA256()))
                return Signature(public_key.keyid, signature.hex())

        return Remote()


def test_a_key_service(tmp_path, monkeypatch):
    service = Service(p256())
    monkeypatch.setattr(signers.AWSSigner, "import_", service.import_)
    monkeypatch.setitem(SIGNER_FOR_URI_SCHEME, "awskms", service)
    environment = place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": "awskms:alias/dpserve"}
    Home.init(environment)
    home = Home.open(environment)
    assert signs(home).keyid == fingerprint(service.private.public_key())
    service.down = True
    with pytest.raises(KeyInvalid, match="ConnectionError: the service does not answer"):
        signs(home)
    with pytest.raises(KeyInvalid, match="does not answer"):
        Home.open(environment)
    service.down, service.private = False, p256()  # another key under the same name
    with pytest.raises(KeyInvalid, match="does not sign by"):
        Home.open(environment)
    service.private = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(KeyInvalid, match="must be Ed25519 or ECDSA on P-256"):
        import_key("awskms:alias/dpserve")


# A PKCS#11 token, in software


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    """A SoftHSM token with two P-256 keys; the library reads its settings once in a process."""
    pkcs11 = pytest.importorskip("pkcs11", reason="not installed: python-pkcs11")
    from pkcs11.util.ec import encode_named_curve_parameters

    folder = tmp_path_factory.mktemp("token")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\n")
    library = next(path for path in LIBRARIES if Path(path).exists())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
        patch.setenv("PYKCS11LIB", library)
        patch.setenv(PIN_VARIABLE, PIN)
        command = ["softhsm2-util", "--init-token", "--free", "--label", "dpserve", "--pin", PIN, "--so-pin", "24680"]
        subprocess.run(command, check=True, capture_output=True)
        with pkcs11.lib(library).get_token(token_label="dpserve").open(rw=True, user_pin=PIN) as session:
            curve = {pkcs11.Attribute.EC_PARAMS: encode_named_curve_parameters("secp256r1")}
            for number in (b"\x02", b"\x03"):
                parameters = session.create_domain_parameters(pkcs11.KeyType.EC, curve, local=True)
                parameters.generate_keypair(store=True, id=number, label="issuer")
        yield "hsm:2?label=dpserve"


@pytest.mark.system("softhsm2-util", "openssl")
def test_a_certificate_by_a_key_in_a_token(token, tmp_path):
    """From the first start to a model that verifies here and with openssl."""
    from training.jobs import job
    from training.requests import JobRequest

    home = Home.open(place(copy(ledgers.prepared(), tmp_path / "home")))
    pinned = home.trust
    key_life.rotate(home, "issuer", *WHY, issuer_key=token)
    home = Home.open(place(home.path) | {"DPSERVE_ISSUER_KEY": token})
    job.train(home, JobRequest("adult", "lazybb", "0.25", parameters={"rounds": 8}), by="test")
    ((_, envelope, proof, onnx),) = ledgers.bundles(home.path)
    found = verify(envelope, proof.decode(), onnx, home.trust)
    assert found.epsilon <= Decimal("0.25")
    (keyid, signature) = dsse.parse(envelope).signatures[0]
    assert keyid == home.keys.key("issuer").keyid
    with pytest.raises(CertificateInvalid, match="pinned issuer key"):
        verify(envelope, proof.decode(), onnx, pinned)
    (tmp_path / "issuer.pem").write_text(public_pem(home.keys.public_key("issuer")))
    (tmp_path / "pae").write_bytes(dsse.pae(dsse.PAYLOAD_TYPE, dsse.parse(envelope).payload))
    (tmp_path / "signature").write_bytes(signature)
    check = ["openssl", "dgst", "-sha256", "-verify", "issuer.pem", "-signature", "signature", "pae"]
    shown = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert (shown.returncode, shown.stdout) == (0, "Verified OK\n")


@pytest.mark.system("softhsm2-util")
def test_a_first_start_with_a_token(token, tmp_path, monkeypatch):
    environment = place(tmp_path / "home") | {"DPSERVE_ISSUER_KEY": token}
    home = Home.init(environment)
    assert isinstance(signs(home).public, ec.EllipticCurvePublicKey)
    signs(Home.open(environment))
    for file in (home.path / "keys").iterdir():
        assert PIN.encode() not in file.read_bytes()
    with pytest.raises(KeyInvalid, match="does not sign by"):
        Home.open(environment | {"DPSERVE_ISSUER_KEY": "hsm:3?label=dpserve"})
    key_life.rotate(home, "issuer", *WHY, issuer_key="hsm:3?label=dpserve")
    signs(Home.open(environment | {"DPSERVE_ISSUER_KEY": "hsm:3?label=dpserve"}))
    with pytest.raises(KeyInvalid, match="does not sign by"):
        Home.open(environment)


@pytest.mark.system("softhsm2-util")
def test_a_token_that_does_not_serve(token, monkeypatch):
    public = import_key(token).public
    for uri, problem in (
        ("hsm:9?label=dpserve", "could not find ECDSA key"),
        ("hsm:2?label=other", "No PKCS#11 token found for label other"),
        ("hsm:two", "ValueError"),
    ):
        with pytest.raises(KeyInvalid, match=problem):
            import_key(uri)
    monkeypatch.setenv(PIN_VARIABLE, "00000")
    with pytest.raises(KeyInvalid, match="PinIncorrect") as refused:
        open_key(token, public)
    assert "00000" not in refused.value.message
    monkeypatch.delenv(PIN_VARIABLE)
    with pytest.raises(KeyInvalid, match=f"{PIN_VARIABLE}: must hold the token's pin"):
        open_key(token, public)
    monkeypatch.setenv(PIN_VARIABLE, PIN)
    monkeypatch.delenv("PYKCS11LIB")
    with pytest.raises(KeyInvalid, match="PYKCS11LIB"):
        open_key(token, public)


@pytest.mark.slow
@pytest.mark.system("softhsm2-util", "openssl")
def test_the_steps_in_the_documentation(token, tmp_path):
    """docs/reference/home.md, with a token in SoftHSM, to try it out."""
    (steps,) = [each for each in blocks("docs/reference/home.md", "text") if "softhsm2-util" in each]
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm2.conf").write_text(f"directories.tokendir = {tmp_path}/tokens\nobjectstore.backend = file\n")
    script = f'set -euo pipefail; dpserve() {{ "{sys.executable}" -m serving.cli "$@"; }}\n{steps}'
    script = script.replace(LIBRARIES[0], os.environ["PYKCS11LIB"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SOFTHSM2_CONF": f"{tmp_path}/softhsm2.conf"}
    environment["DPSERVE_HOME"] = str(tmp_path / "home")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trust = PublicKeys.from_json((tmp_path / "home" / "trust.json").read_bytes())
    assert isinstance(trust.issuers[0].public_key, ec.EllipticCurvePublicKey)


def test_ecdsa_signatures_differ_each_time_and_all_verify():
    """So nothing may compare envelopes byte by byte."""
    key = p256()
    signer = CryptoSigner(key, SSlibKey.from_crypto(key.public_key(), keyid=fingerprint(key.public_key())))
    envelopes = [dsse.sign(b"{}", signer) for _ in range(2)]
    assert envelopes[0] != envelopes[1]
    assert [json.loads(each)["payload"] for each in envelopes] == ["e30="] * 2
