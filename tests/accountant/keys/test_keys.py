"""Keys on disk and the trust file: what is whole opens, everything else is refused by name."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.exceptions import UnverifiedSignatureError
from trusts import public_keys

from accountant.keys import private_keys
from accountant.keys.key_files import PASSPHRASE_VARIABLE, load_private, private_pem
from accountant.keys.private_keys import KeyStore
from dpserve_verify.errors import KeyInvalid
from dpserve_verify.keys.trust import IssuerKey, LogKey, PublicKeys, fingerprint, load_public_pem, public_pem
from dpserve_verify.keys.verifier_keys import parse_verifier_key

ORIGIN = "example.org/ledger"
PRIVATE_FILES = ["issuer.pem", "log.pem", "commitment.key"]
PUBLIC_FILES = ["issuer.pub.pem", "log.pub.pem"]


@pytest.fixture(autouse=True)
def no_passphrase(monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)


@pytest.fixture
def home(tmp_path):
    KeyStore.create(tmp_path / "keys")
    return tmp_path / "keys"


def test_created_files_and_modes(home):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert modes == dict.fromkeys(PRIVATE_FILES, 0o600) | dict.fromkeys(PUBLIC_FILES, 0o644)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert [path.name for path in home.parent.iterdir()] == ["keys"]
    assert (home / "issuer.pem").read_text().startswith("-----BEGIN PRIVATE KEY-----\n")


def test_what_was_created_opens_and_signs(home):
    store = KeyStore.open(home)
    signer = store.signer("issuer")
    signature = signer.sign(b"data")
    assert signature.keyid == signer.public_key.keyid == fingerprint(store.public_key("issuer"))
    signer.public_key.verify_signature(signature, b"data")
    with pytest.raises(UnverifiedSignatureError):
        signer.public_key.verify_signature(signature, b"other")
    assert store.signer("log").public_key.keyid != signature.keyid
    assert public_keys(KeyStore.open(home), ORIGIN) == public_keys(store, ORIGIN)


def test_no_secret_in_the_repr(home):
    store = KeyStore.open(home)
    secret = (home / "commitment.key").read_bytes()
    assert repr(secret) not in repr(store)
    assert "PrivateKey" not in repr(store)


def test_commitment_is_keyed_and_ignores_chunking(home, tmp_path):
    store, other = KeyStore.open(home), KeyStore.create(tmp_path / "other")
    assert store.commitment([b"ab", b"", b"c"]) == store.commitment(iter([b"abc"]))
    assert store.commitment([b"abc"]) != store.commitment([b"abd"])
    assert store.commitment([b"abc"]) != other.commitment([b"abc"])


def test_keys_are_never_replaced(home):
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    with pytest.raises(KeyInvalid, match="never replaced"):
        KeyStore.create(home)
    for name in before:
        if name != "log.pub.pem":
            (home / name).unlink()
    with pytest.raises(KeyInvalid, match="never replaced"):
        KeyStore.create(home)
    assert (home / "log.pub.pem").read_bytes() == before["log.pub.pem"]


def test_create_takes_an_empty_directory_and_no_link_or_file(tmp_path):
    (tmp_path / "empty").mkdir(mode=0o755)
    KeyStore.create(tmp_path / "empty")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(KeyInvalid, match=name):
            KeyStore.create(tmp_path / name)


DIES = """
import os, pathlib, sys
from accountant.keys.private_keys import KeyStore
calls, sync = [], os.fsync
def fsync(fd):
    calls.append(fd)
    os._exit(9) if len(calls) == int(sys.argv[1]) else sync(fd)
os.fsync = fsync
KeyStore.create(pathlib.Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stop", range(1, 9))
def test_a_crash_at_any_write_leaves_no_keys_and_says_what_to_do(tmp_path, stop):
    """The process dies at its `stop`-th sync, without clean-up: no key directory, or a whole one."""
    command = [sys.executable, "-c", DIES, str(stop), tmp_path / "keys"]
    status = subprocess.run(command, cwd=Path(private_keys.__file__).parents[1]).returncode
    if (tmp_path / "keys").exists():  # the sync of the parent, after the rename, or no crash at all
        assert stop >= 7
        KeyStore.open(tmp_path / "keys")
        return
    assert status == 9
    for call in (KeyStore.open, KeyStore.create):
        with pytest.raises(KeyInvalid, match=r"keys\.partial: left by an interrupted start"):
            call(tmp_path / "keys")
    shutil.rmtree(tmp_path / "keys.partial")
    KeyStore.create(tmp_path / "keys")


def test_an_error_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(path, content, mode):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_keys, "write_new", full)
    with pytest.raises(OSError, match="No space"):
        KeyStore.create(tmp_path / "keys")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PRIVATE_FILES + PUBLIC_FILES)
def test_a_missing_linked_or_odd_file_is_refused(home, name):
    (home / name).rename(home / "moved")
    with pytest.raises(KeyInvalid, match=name):
        KeyStore.open(home)
    (home / name).symlink_to("moved")
    with pytest.raises(KeyInvalid, match=f"{name}: must be a readable file and no link"):
        KeyStore.open(home)
    (home / name).unlink()
    os.mkfifo(home / name, 0o600)
    with pytest.raises(KeyInvalid, match=f"{name}: must be a regular file"):
        KeyStore.open(home)
    (home / name).unlink()
    (home / name).write_bytes(bytes(20_000))
    with pytest.raises(KeyInvalid, match=f"{name}: must be a regular file"):
        KeyStore.open(home)
    (home / name).unlink()
    (home / name).write_bytes(b"")
    (home / name).chmod(0o600)
    with pytest.raises(KeyInvalid, match=name):
        KeyStore.open(home)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o644, 0o666])
@pytest.mark.parametrize("name", PRIVATE_FILES)
def test_a_private_file_open_to_others_is_refused(home, name, mode):
    (home / name).chmod(mode)
    with pytest.raises(KeyInvalid, match=f"{name}: mode={mode:04o}"):
        KeyStore.open(home)


@pytest.mark.parametrize("mode", [0o664, 0o646])
@pytest.mark.parametrize("name", PUBLIC_FILES)
def test_a_public_file_others_may_write_is_refused(home, name, mode):
    (home / name).chmod(mode)
    with pytest.raises(KeyInvalid, match=f"{name}: mode={mode:04o}"):
        KeyStore.open(home)


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o711, 0o770, 0o777])
def test_a_directory_open_to_others_is_refused(home, mode):
    home.chmod(mode)
    with pytest.raises(KeyInvalid, match=f"mode={mode:04o}"):
        KeyStore.open(home)


def test_a_missing_or_linked_directory_is_refused(home, tmp_path):
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "file").write_text("")
    for name in ("absent", "link", "file"):
        with pytest.raises(KeyInvalid, match="must be a directory of keys and no link"):
            KeyStore.open(tmp_path / name)


def test_a_foreign_owner_is_refused(home, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(KeyInvalid, match="must belong to the user"):
        KeyStore.open(home)


def test_halves_that_do_not_match_are_refused(home, tmp_path):
    other = KeyStore.create(tmp_path / "other").directory
    for role in ("issuer", "log"):
        original = (home / f"{role}.pub.pem").read_bytes()
        (home / f"{role}.pub.pem").write_bytes((other / f"{role}.pub.pem").read_bytes())
        with pytest.raises(KeyInvalid, match=f"{role}.pub.pem: must be the public half"):
            KeyStore.open(home)
        (home / f"{role}.pub.pem").write_bytes(original)
    for half in ("pem", "pub.pem"):
        (home / f"log.{half}").write_bytes((home / f"issuer.{half}").read_bytes())
    with pytest.raises(KeyInvalid, match="two different keys"):
        KeyStore.open(home)


def test_another_kind_of_key_is_refused(home):
    pem = pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8, pkix.NoEncryption()
    (home / "log.pem").write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*pem))
    with pytest.raises(KeyInvalid, match=r"log.pem: must be an Ed25519 key"):
        KeyStore.open(home)
    (home / "log.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(KeyInvalid, match=r"log.pem: must be PKCS8"):
        KeyStore.open(home)
    (home / "commitment.key").write_bytes(bytes(31))


def test_a_commitment_key_of_another_length_is_refused(home):
    (home / "commitment.key").write_bytes(bytes(31))
    with pytest.raises(KeyInvalid, match=r"commitment.key: must be 32 bytes"):
        KeyStore.open(home)


def test_passphrase(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "correct horse")
    store = KeyStore.create(tmp_path / "keys")
    assert "ENCRYPTED" in (tmp_path / "keys" / "issuer.pem").read_text()
    assert public_keys(KeyStore.open(tmp_path / "keys", lambda: b"correct horse"), ORIGIN) == public_keys(store, ORIGIN)
    for wrong in (None, b"wrong horse"):
        with pytest.raises(KeyInvalid, match=r"issuer.pem.*DPSERVE_KEY_PASSPHRASE"):
            KeyStore.open(tmp_path / "keys", lambda wrong=wrong: wrong)


def test_a_passphrase_is_worth_600_000_rounds_and_older_files_open(tmp_path):
    """As openssl reads it; and a file of the 2,048 rounds that were the library's own."""
    key, form = Ed25519PrivateKey.generate(), (pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8)
    for number, secret in enumerate((b"correct horse", b"x", "päss \N{SNOWMAN}".encode() * 30)):
        pem = private_pem(key, secret)
        rounds = (600_000).to_bytes(3, "big")
        assert b"\x02\x03" + rounds in base64.b64decode(b"".join(pem.splitlines()[1:-1]))
        assert load_private(pem, secret, "a").private_bytes_raw() == key.private_bytes_raw()
        assert pem != private_pem(key, secret)
        if shutil.which("openssl"):
            (tmp_path / "secret").write_bytes(secret + b"\n")
            command = ["openssl", "pkey", "-passin", f"file:{tmp_path / 'secret'}", "-outform", "DER"]
            done = subprocess.run(command, input=pem, capture_output=True, check=True)
            assert done.stdout == key.private_bytes(pkix.Encoding.DER, form[1], pkix.NoEncryption()), number
    older = key.private_bytes(*form, pkix.BestAvailableEncryption(b"x"))
    assert load_private(older, b"x", "a").private_bytes_raw() == key.private_bytes_raw()


def test_a_passphrase_that_protects_nothing_is_refused(home, monkeypatch):
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "secret")
    with pytest.raises(KeyInvalid, match="DPSERVE_KEY_PASSPHRASE"):
        KeyStore.open(home)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "")
    with pytest.raises(KeyInvalid, match="must not be empty"):
        KeyStore.open(home)


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
def test_fingerprint_is_that_of_openssh(home, tmp_path):
    p256 = ec.generate_private_key(ec.SECP256R1()).public_key()
    for key in (KeyStore.open(home).public_key("issuer"), p256):
        line = key.public_bytes(pkix.Encoding.OpenSSH, pkix.PublicFormat.OpenSSH)
        (tmp_path / "key.pub").write_bytes(line)
        shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
        assert fingerprint(key) == shown.stdout.split()[1]


def test_fingerprint_vector():
    """`ssh-keygen -lf` of the Ed25519 key of RFC 8032, 7.1, test 1."""
    key = Ed25519PrivateKey.from_private_bytes(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    ).public_key()
    assert key.public_bytes_raw().hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert fingerprint(key) == "SHA256:bbXpuKG6zhzdmnxq256TlqzFBzRl2f6OOg722cYNbU8"


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_openssl_reads_both_halves(home):
    command = ["openssl", "pkey", "-in", home / "issuer.pem", "-pubout"]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    assert shown == (home / "issuer.pub.pem").read_bytes()


def test_public_pem_is_strict(home):
    pem = (home / "issuer.pub.pem").read_text()
    assert public_pem(load_public_pem(pem)) == pem
    p256 = public_pem(ec.generate_private_key(ec.SECP256R1()).public_key())
    assert public_pem(load_public_pem(p256)) == p256
    foreign = [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())]
    bad = [pem + pem, "x" + pem, pem + "x", pem.strip(), pem.replace("\n", "\r\n"), "", "é", *map(public_half, foreign)]
    for text in bad:
        with pytest.raises(KeyInvalid):
            load_public_pem(text)


def public_half(private):
    return public_pem(private.public_key())


def test_trust_round_trip(home):
    trust = public_keys(KeyStore.open(home), ORIGIN)
    raw = trust.to_json()
    assert PublicKeys.from_json(raw) == trust
    assert PublicKeys.from_json(json.dumps(json.loads(raw), indent=2).encode() + b"\n") == trust
    assert PublicKeys.from_json(raw).to_json() == raw
    name, log_key = parse_verifier_key(json.loads(raw)["logs"][0]["vkey"])
    assert (name, public_pem(log_key)) == (ORIGIN, trust.log_pem)


def test_issuer_keys_are_valid_by_ledger_index(home, tmp_path):
    first, second = KeyStore.open(home), KeyStore.create(tmp_path / "second")
    pems = [public_pem(store.public_key("issuer")) for store in (first, second)]
    issuers = (IssuerKey(pems[0], 0, 10), IssuerKey(pems[1], 8))
    trust = PublicKeys(ORIGIN, issuers, public_pem(first.public_key("log")))
    ids = [fingerprint(load_public_pem(pem)) for pem in pems]
    assert [sorted(trust.issuer_keys(i)) for i in (0, 7)] == [ids[:1]] * 2
    assert [sorted(trust.issuer_keys(i)) for i in (8, 9)] == [sorted(ids)] * 2
    assert sorted(trust.issuer_keys(10)) == ids[1:]
    assert sorted(trust.issuer_keys()) == sorted(ids)
    assert PublicKeys.from_json(trust.to_json()) == trust


def test_inconsistent_trust_is_refused(home):
    trust = public_keys(KeyStore.open(home), ORIGIN)
    issuer = trust.issuers[0]
    for changes in (
        {"origin": "no good"},
        {"issuers": ()},
        {"issuers": (issuer, issuer)},
        {"issuers": (replace(issuer, from_index=-1),)},
        {"issuers": (replace(issuer, from_index=5, until_index=4),)},
        {"issuers": (replace(issuer, pem="x"),)},
        {"log_pem": issuer.pem},
        {"log_pem": public_half(ec.generate_private_key(ec.SECP256R1()))},
    ):
        with pytest.raises(KeyInvalid):
            replace(trust, **changes)


def changed(value, path, new):
    copy = json.loads(json.dumps(value))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = new
    return json.dumps(copy).encode()


def test_malformed_trust_files_are_refused(home, tmp_path):
    raw = public_keys(KeyStore.open(home), ORIGIN).to_json()
    other = json.loads(public_keys(KeyStore.create(tmp_path / "other"), ORIGIN).to_json())
    value = json.loads(raw)
    bad = [
        b"",
        b"[]",
        raw + b"x",
        raw[:-1],
        raw.replace(b'"origin":', b'"origin":"a.example","origin":'),
        b" " * 1_100_000 + raw,
        changed(value, ["extra"], 1),
        changed(value, ["format"], "dpserve-trust/v1"),
        changed(value, ["format"], "dpserve-trust/v3"),
        changed(value, ["origin"], 5),
        changed(value, ["origin"], "example.org/other"),
        changed(value, ["issuers"], {}),
        changed(value, ["issuers"], []),
        changed(value, ["issuers", 0, "from_index"], 0.0),
        changed(value, ["issuers", 0, "from_index"], True),
        changed(value, ["issuers", 0, "until_index"], -1),
        changed(value, ["issuers", 0, "until_index"], "9"),
        changed(value, ["issuers", 0, "pem"], other["issuers"][0]["pem"]),
        changed(value, ["issuers", 0, "keyid"], other["issuers"][0]["keyid"]),
        changed(value, ["issuers", 0, "note"], ""),
        changed(value, ["logs"], {}),
        changed(value, ["logs"], []),
        changed(value, ["logs", 0, "pem"], other["logs"][0]["pem"]),
        changed(value, ["logs", 0, "vkey"], other["logs"][0]["vkey"]),
        changed(value, ["logs", 0, "vkey"], None),
        changed(value, ["logs", 0, "from_size"], "0"),
        changed(value, ["logs", 0, "from_size"], -1),
        changed(value, ["logs", 0, "until_size"], 9),
        changed(value, ["logs", 0, "note"], ""),
        changed(value, ["logs"], value["logs"] + other["logs"]),
        changed(value, ["revoked"], {}),
        changed(value, ["revoked"], [-1]),
        changed(value, ["revoked"], [True]),
        changed(value, ["revoked"], [2, 1]),
        changed(value, ["revoked"], [1, 1]),
    ]
    for text in bad:
        with pytest.raises(KeyInvalid):
            PublicKeys.from_json(text)


def log_keys(tmp_path, count):
    stores = [KeyStore.create(tmp_path / f"log {number}") for number in range(count)]
    return [public_pem(store.public_key("log")) for store in stores]


def test_log_keys_sign_by_tree_size(home, tmp_path):
    issuers = public_keys(KeyStore.open(home), ORIGIN).issuers
    pems = log_keys(tmp_path, 3)
    logs = (LogKey(pems[0], 0, 7), LogKey(pems[1], 7, 9), LogKey(pems[2], 12))
    trust = PublicKeys.of(ORIGIN, issuers, logs, frozenset({5, 3}))
    names = {size: public_pem(trust.log_key_at(size)) for size in (0, 6, 7, 8, 12, 10**9)}
    assert names == dict(zip(names, [pems[0], pems[0], pems[1], pems[1], pems[2], pems[2]], strict=True))
    assert (trust.log_pem, public_pem(trust.log_key), trust.logs) == (pems[2], pems[2], logs)
    for size in (9, 11):
        with pytest.raises(KeyInvalid, match=f"no pinned log key speaks for size {size}"):
            trust.log_key_at(size)
    assert PublicKeys.from_json(trust.to_json()) == trust
    assert json.loads(trust.to_json())["revoked"] == [3, 5]


def test_log_keys_that_overlap_or_do_not_end_are_refused(home, tmp_path):
    issuers = public_keys(KeyStore.open(home), ORIGIN).issuers
    first, second = log_keys(tmp_path, 2)
    for logs in (
        (),
        (LogKey(first, 0, 5),),
        (LogKey(first), LogKey(second, 5)),
        (LogKey(first, 0, 6), LogKey(second, 5)),
        (LogKey(first, 4, 3), LogKey(second, 5)),
        (LogKey(first, -1, 3), LogKey(second, 5)),
        (LogKey(first, -1),),
        (LogKey(second, 5), LogKey(first, 0, 5)),
        (LogKey(first, 0, 5), LogKey(first, 5)),
        (LogKey(first, 0, 5), LogKey(issuers[0].pem, 5)),
    ):
        with pytest.raises(KeyInvalid):
            PublicKeys.of(ORIGIN, issuers, logs, frozenset())
