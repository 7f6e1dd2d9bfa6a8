"""`dpserve key ...` and `dpserve init --issuer-key`: what they print, what they change, and what they refuse."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric import ec
from pages import part

from accountant.home import Home
from accountant.keys.key_files import PASSPHRASE_VARIABLE
from dpserve_verify.keys.trust import PublicKeys
from serving.cli.app import run
from serving.cli.keys import NEW_PASSPHRASE

pytestmark = pytest.mark.home("trained", folder=True)


@pytest.fixture
def said(capsys):
    """Run a command: (exit code, stdout as JSON, stderr)."""

    def call(*arguments):
        capsys.readouterr()
        code = run([*arguments, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return call


@pytest.fixture
def issuer_file(tmp_path):
    path = tmp_path / "issuer.pem"
    pem = pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8, pkix.NoEncryption()
    path.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*pem))
    path.chmod(0o600)
    return f"file:{path}"


def good(said, role):
    """The keyids of a role that may sign now."""
    return [key["keyid"] for key in said("key", "list")[1]["keys"] if (key["role"], key["state"]) == (role, "good")]


def verified(said, home):
    """Which models `dpserve verify` lets pass with the home's trust file."""
    return [n for n in ("1", "2") if said("verify", str(home / "models" / "adult" / n))[0] == 0]


def test_list_for_people_and_programs(home, said, capsys):
    said("key", "rotate", "--role", "log", "--reason", "yearly")
    _, body, _ = said("key", "list")
    assert [(key["role"], key["state"], key["until"] is None) for key in body["keys"]] == [
        ("log", "retired", False),
        ("log", "good", True),
        ("issuer", "good", True),
    ]
    assert body["origin"] == Home.open().trust.origin
    assert body["revoked"] == []
    assert "PRIVATE" not in json.dumps(body)
    capsys.readouterr()
    assert run(["key", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ROLE", "KEYID", "FROM", "UNTIL", "STATE"]
    assert len(lines) == 4


@pytest.mark.parametrize("role", ["issuer", "log"])
def test_rotate(home, said, role):
    before = good(said, role)
    code, body, err = said("key", "rotate", "--role", role, "--reason", "yearly")
    assert (code, body["role"], body["state"], body["until"]) == (0, role, "good", None)
    assert good(said, role) == [body["keyid"]] != before
    assert "trust.json" in err
    entry = Home.open().ledger.log.entry(body["added"]).value
    assert (entry["type"], entry["reason"]) == ("key-added", "yearly")
    assert entry["by"].startswith("cli:")
    assert verified(said, home) == ["1", "2"]


def test_rotate_with_overlap_then_retire(home, said):
    (old,) = good(said, "issuer")
    new = said("key", "rotate", "--role", "issuer", "--reason", "two hosts", "--overlap")[1]["keyid"]
    assert good(said, "issuer") == [old, new]
    code, body, _ = said("key", "retire", old, "--reason", "both have it")
    assert (code, body["state"]) == (0, "retired")
    assert good(said, "issuer") == [new]
    code, body, _ = said("key", "retire", new, "--reason", "one too many")
    assert (code, body["error"]["code"]) == (2, "wrong_state")


def test_mark_compromised_an_issuer(home, said):
    (old,) = good(said, "issuer")
    code, body, _ = said("key", "mark-compromised", old, "--after", "1", "--reason", "laptop stolen")
    assert (code, body["renewed"], body["successor"]["state"]) == (0, [], "good")
    assert good(said, "issuer") == [body["successor"]["keyid"]]
    assert verified(said, home) == []


def test_mark_compromised_the_log_makes_proofs_anew(home, said):
    (old,) = good(said, "log")
    code, body, err = said("key", "mark-compromised", old, "--after", "0", "--reason", "disk sold")
    assert (code, body["renewed"]) == (0, ["adult@1", "adult@2"])
    assert "adult@1, adult@2" in err
    assert verified(said, home) == ["1", "2"]
    assert said("key", "renew-proofs")[1] == {"renewed": []}


def test_every_command_of_the_page_runs(home, said):
    """docs/reference/home.md, in its order."""
    page = part("docs/reference/home.md", "Keys")
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)).splitlines()
    assert [line.split()[2] for line in lines] == ["rotate", "rotate", "list", "mark-compromised", "revoke"]
    for line in lines:
        of_now = line.replace("SHA256:...", good(said, "issuer")[0]).replace("--after 1200", "--after 3")
        code, body, err = said(*shlex.split(of_now)[1:])
        assert code == 0, (line, body, err)
    assert verified(said, home) == [
        "1"
    ]  # the other one was revoked; the key that signed both was good until it was retired


def test_revoke_a_model_or_an_entry(home, said):
    code, first, _ = said("key", "revoke", "adult@1", "--reason", "wrong file")
    assert code == 0
    assert said("key", "list")[1]["revoked"] == [first["issued"]]
    assert verified(said, home) == ["2"]
    assert said("key", "revoke", "adult@1", "--reason", "wrong file")[1]["error"]["code"] == "wrong_state"
    issued = Home.open().ledger.job(max(job.seq for job in Home.open().ledger.jobs())).issued
    code, second, _ = said("key", "revoke", "--entry", str(issued), "--reason", "wrong file")
    assert (code, second["issued"]) == (0, issued)
    assert verified(said, home) == []
    for arguments in ((), ("adult@1", "--entry", "3"), ("adult@9",), ("--entry", "0")):
        assert said("key", "revoke", *arguments, "--reason", "wrong file")[0] == 2
    assert PublicKeys.from_json((home / "trust.json").read_bytes()).revoked == {first["issued"], issued}


def test_what_is_refused_changes_nothing(home, said):
    size = Home.open().ledger.log.size()
    (old,) = good(said, "issuer")
    for arguments in (
        ("rotate", "--role", "root", "--reason", "x"),
        ("rotate", "--role", "issuer"),
        ("rotate", "--role", "issuer", "--reason", " "),
        ("rotate", "--role", "log", "--reason", "x", "--overlap"),
        ("rotate", "--role", "log", "--reason", "x", "--issuer-key", "file:"),
        ("rotate", "--role", "issuer", "--reason", "x", "--issuer-key", "gnupg:x"),
        ("retire", "SHA256:other", "--reason", "x"),
        ("mark-compromised", old, "--after", "99999", "--reason", "x"),
        ("mark-compromised", old, "--reason", "x"),
        ("passphrase",),
    ):
        assert said("key", *arguments)[0] == 2
    assert Home.open().ledger.log.size() == size
    assert good(said, "issuer") == [old]


def test_init_and_rotate_with_a_key_elsewhere(tmp_path, said, issuer_file, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "new"))
    assert said("init", "--issuer-key", issuer_file)[0] == 0
    code, body, _ = said("key", "list")
    assert (code, body["error"]["code"]) == (4, "key_invalid")
    monkeypatch.setenv("DPSERVE_ISSUER_KEY", issuer_file)
    assert said("key", "list")[0] == 0
    code, _, err = said("key", "rotate", "--role", "issuer", "--reason", "back", "--issuer-key", "file:")
    assert code == 0
    assert "DPSERVE_ISSUER_KEY must be unset" in err
    assert said("key", "list")[0] == 4
    monkeypatch.delenv("DPSERVE_ISSUER_KEY")
    code, _, err = said("key", "rotate", "--role", "issuer", "--reason", "out", "--issuer-key", issuer_file)
    assert code == 2  # it was a key of this ledger before
    assert said("key", "list")[0] == 0


def test_passphrase(home, said, monkeypatch):
    monkeypatch.setenv(NEW_PASSPHRASE, "correct horse")
    code, body, err = said("key", "passphrase")
    assert (code, body) == (0, {"encrypted": True})
    assert "correct horse" not in err
    assert said("key", "list")[0] == 4
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "correct horse")
    assert said("key", "list")[0] == 0
    assert said("key", "passphrase", "--remove")[0] == 2  # which of the two?
    monkeypatch.delenv(NEW_PASSPHRASE)
    assert said("key", "passphrase", "--remove")[1] == {"encrypted": False}
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    assert said("key", "list")[0] == 0
