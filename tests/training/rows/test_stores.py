"""Rows of a real object store: S3 as `moto_server` speaks it, in a process and an environment of its own; a proxy in
between cuts, holds up and counts. `make stores-test`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import unquote

import pytest
from parts_of_rows import SCHEMA, register, write_parts
from pyarrow import fs

from serving.cli.app import run
from training.rows.sources import remote

pytestmark = [pytest.mark.stores, pytest.mark.server]
SECRET = "hush-hush-hush"


class Proxy:
    """Passes on to the store; `cut` and `held` are names of objects whose bytes it cuts off or holds back."""

    def __init__(self, port: int) -> None:
        self.port, self.cut, self.held, self.got = port, "none", "none", []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                there = self.server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._pass, args=[there], daemon=True).start()

    def _pass(self, there: socket.socket) -> None:
        """One request to a connection: the store is told to close after its answer."""
        with there, socket.create_connection(("127.0.0.1", self.port)) as store:
            head = b""
            while b"\r\n\r\n" not in head and (part := there.recv(1 << 16)):
                head += part
            head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            asked = unquote(head.partition(b"\r\n")[0].decode())
            store.sendall(head)
            body = b"".join(iter(lambda: store.recv(1 << 16), b""))
            if asked.startswith("GET") and "list-type" not in asked:
                self.got.append(asked.split()[1])
                if self.held in asked:
                    time.sleep(60)
                if self.cut in asked:
                    body = body[:-100]
            there.sendall(body)


@pytest.fixture(scope="module")
def moto():
    python = os.environ.get("STORES_PYTHON")
    assert python, "STORES_PYTHON: a python that has moto; make stores-test makes one"
    command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    said = []
    for line in server.stdout:  # ends where the server does
        said.append(line)
        if found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", line):
            break
    else:
        pytest.fail("".join(said))
    threading.Thread(target=server.stdout.read, daemon=True).start()
    yield int(found[1])
    server.kill()
    server.wait()


@pytest.fixture
def store(moto, monkeypatch, tmp_path):
    """An empty bucket `rows`, with five parts in `rows/taxis`; and the proxy that leads to it."""
    proxy = Proxy(moto)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAHUSH", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": proxy.url,
        "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "DPSERVE_HOME": str(tmp_path / "home"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "PATIENCE", 1)
    _moto(moto, "reset")
    client = fs.S3FileSystem(endpoint_override=f"http://127.0.0.1:{moto}", allow_bucket_creation=True)
    client.create_dir("rows")
    write_parts(tmp_path / "drive")
    fs.copy_files(str(tmp_path / "drive"), "rows/taxis", destination_filesystem=client)
    proxy.client = client
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    assert run(["init"]) == 0
    yield proxy
    proxy.server.close()


def _moto(port, what, body=b""):
    url, plain = f"http://127.0.0.1:{port}/moto-api/{what}", {"Content-Type": "text/plain"}
    urllib.request.urlopen(urllib.request.Request(url, body, plain, method="POST")).close()


def test_rows_of_a_bucket_are_those_of_a_disk_and_no_secret_is_kept(store, tmp_path, capfd):
    assert register("a", "s3://rows/taxis/*/*.csv", tmp_path) == 0
    assert register("b", tmp_path / "drive", tmp_path) == 2
    said = capfd.readouterr()
    assert "these rows are registered already, as a" in said.err
    held = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"s3://rows/taxis/*/*.csv" in held
    assert SECRET.encode() not in held
    assert SECRET not in said.out + said.err
    new = "--new-rows", "--reason", "few values, many rows"
    store.client.delete_dir("rows/taxis/year=2020")
    assert run(["dataset", "append", "a", "--records", "1000", "--data", "s3://rows/taxis", *new]) == 0
    assert not list((tmp_path / "home").glob("datasets/*.*"))


def _again(client, path):
    with client.open_input_stream(path) as source:
        content = source.read()
    with client.open_output_stream(path) as target:
        target.write(content.replace(b"2599,", b"2598,"))


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (_again, "changed while it was read, or was cut short"),
        (lambda client, path: client.delete_file(path), "no such bucket or object"),
    ],
)
def test_an_object_that_changes_or_vanishes_is_named_and_nothing_is_registered(
    store, tmp_path, monkeypatch, capfd, what, told
):
    """Within a second of its first version and of the same size, so that its version alone tells."""
    real = remote._copy_object

    def meanwhile(source, file):
        found = real(source, file)
        if file.parent.name == "year=2022":
            what(store.client, "rows/taxis/year=2022/part.csv")
        return found

    monkeypatch.setattr(remote, "_copy_object", meanwhile)
    assert register("a", "s3://rows/taxis", tmp_path) == 2
    assert told in capfd.readouterr().err
    monkeypatch.setattr(remote, "_copy_object", real)
    (notes,) = tmp_path.glob("home/datasets/*/pieces")
    kept = {json.loads(line)["path"] for line in notes.open()}
    store.got.clear()
    assert register("a", "s3://rows/taxis", tmp_path) == 0
    assert not kept & {each.lstrip("/") for each in store.got}
    assert store.got or what is not _again


def test_what_a_store_refuses_is_told_without_its_words(store, moto, tmp_path, capfd):
    def told(data):
        assert register("a", data, tmp_path) == 2
        error = capfd.readouterr().err
        assert "Nothing was registered" in error
        assert not re.search(r"AKIA|Request|curl|127\.0\.0", error)
        return error

    assert "no such bucket or object" in told("s3://none-such/taxis")
    assert "no such bucket or object" in told("s3://rows/none")
    store.cut = "year=2022"
    assert "cannot be reached" in told("s3://rows/taxis")
    store.cut, store.held = "none", "year=2022"
    assert "did not answer in time" in told("s3://rows/taxis")
    _moto(moto, "reset-auth", b"0")  # from now on, every request must be signed by somebody who may
    try:
        assert "the store refused: the credentials" in told("s3://rows/taxis")
    finally:
        _moto(moto, "reset-auth", b"inf")
    store.server.close()
    assert "cannot be reached" in told("s3://rows/taxis")


def test_a_registration_that_was_killed_goes_on_from_the_pieces_it_had(store, tmp_path, monkeypatch, capfd):
    store.held = "year=2024"
    monkeypatch.setenv("PYTHONPATH", str(Path(remote.__file__).parents[3]))
    code = "import sys; from training.rows.sources import remote; remote.PATIENCE = 60; "
    code += "from serving.cli.app import run; run(sys.argv[1:])"
    command = ["dataset", "register", "a", "--data", "s3://rows/taxis", "--schema", str(tmp_path / "schema.yaml")]
    command += ["--epsilon", "3", "--delta", "1e-6", "--unit", "record"]
    process = subprocess.Popen([sys.executable, "-c", code, *command])
    while len([line for notes in tmp_path.glob("home/datasets/*/pieces") for line in notes.open()]) < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    store.held = "none"
    store.got.clear()
    assert register("a", "s3://rows/taxis", tmp_path) == 0
    assert {*store.got} == {"/rows/taxis/year=2024/part.csv"}
    assert register("b", tmp_path / "drive", tmp_path) == 2
    assert "these rows are registered already, as a" in capfd.readouterr().err
