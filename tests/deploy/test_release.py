"""What goes out is signed, file by file, and checked: by us, by openssl, and by sigstore's own JavaScript."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import npm
import pytest
from pages import blocks

from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import fingerprint, load_public_pem

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, str(ROOT / "deploy" / "release.py")]
FILES = {"dpserve-9-py3-none-any.whl": b"a wheel", "dpserve-run.cdx.json": b"{}", "image.digest": b"sha256:00\n"}
pytestmark = pytest.mark.system("openssl")


def make_key(folder: Path, kind: str = "ed25519") -> tuple[Path, Path]:
    private, public = folder / f"{kind}.pem", folder / f"{kind}.pub.pem"
    curve = ["-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "EC" else []
    subprocess.run(["openssl", "genpkey", "-algorithm", kind, *curve, "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return private, public


def run(task: str, folder: Path, key: Path, *more: str) -> subprocess.CompletedProcess:
    command = [*PROGRAM, task, str(folder), "--key", str(key), *more]
    return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False)


@pytest.fixture
def made(tmp_path):
    dist = tmp_path / "dist"
    dist.mkdir()
    for name, content in FILES.items():
        (dist / name).write_bytes(content)
    private, public = make_key(tmp_path)
    done = run("sign", dist, private, "--version", "9", "--commit", "c" * 40)
    assert (done.returncode, done.stdout.count("signed: ")) == (0, 3), done.stderr
    return dist, public


def test_every_file_verifies_by_the_public_key_alone(made):
    dist, public = made
    done = run("verify", dist, public)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [f"verified: {name}: dpserve 9, commit {'c' * 12}" for name in FILES]


def test_what_was_changed_left_out_put_in_or_mixed_is_refused(made, tmp_path):
    dist, public = made
    (wheel, bill, image), bundle = FILES, "image.digest.sigstore.json"
    signed_otherwise = tmp_path / "other"
    shutil.copytree(dist, signed_otherwise)
    private = public.with_name("ed25519.pem")
    assert run("sign", signed_otherwise, private, "--version", "8", "--commit", "c" * 40).returncode == 0
    changes = {
        "is not the file that was signed": lambda at: (at / wheel).write_bytes(b"another wheel"),
        "has no bundle": lambda at: (at / bundle).unlink(),
        "bundles without their file": lambda at: (at / image).unlink(),
        "more.whl: has no bundle": lambda at: (at / "more.whl").write_bytes(b"x"),
        "files of several versions": lambda at: shutil.copy(signed_otherwise / bundle, at / bundle),
        f"{bill}: is not the file": lambda at: shutil.copy(at / bundle, at / f"{bill}.sigstore.json"),
        "sigstore bundle": lambda at: (at / bundle).write_bytes(b"{}"),
    }
    for number, (words, change) in enumerate(changes.items()):
        at = tmp_path / f"changed{number}"
        shutil.copytree(dist, at)
        change(at)
        done = run("verify", at, public)
        assert (done.returncode, words in done.stderr) == (4, True), (words, done.stderr)
    (other := tmp_path / "another").mkdir()
    assert "must be a pinned issuer key" in run("verify", dist, make_key(other)[1]).stderr


def test_keys_and_folders_that_will_not_do(made, tmp_path):
    dist, public = made
    curve, _ = make_key(tmp_path, "EC")
    (tmp_path / "empty").mkdir()
    (dist / "link").symlink_to("image.digest")
    for done, words in (
        (run("sign", tmp_path / "empty", tmp_path / "ed25519.pem"), "must hold the files of a release"),
        (run("sign", dist, tmp_path / "ed25519.pem"), "must hold the files of a release, and nothing else (link)"),
        (run("sign", dist, tmp_path / "none.pem"), "cannot be read as a private key"),
        (run("sign", dist, public), "cannot be read as a private key"),
        (run("sign", dist, curve), "must be an Ed25519 key"),
        (run("verify", dist, tmp_path / "none.pem"), "cannot be read as a public key"),
        (run("verify", tmp_path / "none", public), "must hold the files of a release"),
    ):
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_openssl_verifies_a_bundle(made, tmp_path):
    dist, public = made
    for name in FILES:
        envelope = json.loads((dist / f"{name}.sigstore.json").read_text())["dsseEnvelope"]
        payload = base64.b64decode(envelope["payload"])
        (tmp_path / "pae").write_bytes(dsse.pae(envelope["payloadType"], payload))
        (tmp_path / "signature").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
        command = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-sigfile", "signature", "-in", "pae", "-inkey"]
        done = subprocess.run([*command, str(public)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Signature Verified Successfully" in done.stdout, done.stderr


@pytest.mark.system("openssl", "jq")
def test_who_has_none_of_our_code_checks_a_release_by_the_page(made, tmp_path):
    """The page's own lines: sound for what was signed, and an error for each way in which a file is another."""
    dist, public = made
    (script,) = blocks("docs/audit.md", "sh", "A release")
    wheel, bill, image = FILES

    def rename(at: Path) -> None:
        for end in ("", ".sigstore.json"):
            (at / f"{image}{end}").rename(at / f"image.other{end}")

    changes = {
        "nothing": lambda at: None,
        "changed": lambda at: (at / wheel).write_bytes(b"another wheel"),
        "put in": lambda at: (at / "more.whl").write_bytes(b"x"),
        "renamed": rename,
        "of another": lambda at: shutil.copy(at / f"{image}.sigstore.json", at / f"{bill}.sigstore.json"),
        "another key": lambda at: make_key(at.parent)[1].rename(at.parent / "release.pub.pem"),
    }
    for name, change in changes.items():
        folder = tmp_path / name
        shutil.copytree(dist, folder / "dist")
        shutil.copy(public, folder / "release.pub.pem")
        change(folder / "dist")
        done = subprocess.run(["sh", "-e", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (name == "nothing"), (name, done.stdout, done.stderr)
        if name == "nothing":
            assert done.stdout.count("Signature Verified Successfully") == len(FILES)


@pytest.mark.slow
@pytest.mark.system("node", "npm")
def test_sigstore_verifies_a_bundle(made, tmp_path):
    dist, public = made
    npm.install(ROOT / "tests" / "node", tmp_path)
    hint = fingerprint(load_public_pem(public.read_text()))
    for name in FILES:
        command = ["node", "verify.mjs", str(dist / f"{name}.sigstore.json"), str(dist / name), f"{hint}={public}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, json.loads(done.stdout)["model"]) == (0, name), done.stderr
    changed = tmp_path / "changed"
    changed.write_bytes(b"x")
    command[3] = str(changed)
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_make_release_signs_after_all_else_was_made():
    done = subprocess.run(["make", "-n", "release", "KEY=k.pem"], cwd=ROOT, capture_output=True, text=True, check=True)
    steps = [
        done.stdout.index(words) for words in ("-m build --wheel", "cyclonedx-py", "image.digest", "release.py sign")
    ]
    assert steps == sorted(steps)
