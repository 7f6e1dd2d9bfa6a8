"""Running the server: what is checked at its start, audits, logs, and how it stops. One server under TLS for all."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import warm
from alarms import require_alerts
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from ledgers import copy, filled, place
from small_home import dpserve, environment, free_port, records, until, write_files

from accountant.home import Home
from accountant.log.last_seen import HighWater
from accountant.system.machine import processors
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from serving.launch import server_environment
from serving.process.config.startup import (
    Listening,
    Tls,
    check_home,
    check_listening,
    check_place,
    fit_workers,
    pair_tls,
)
from serving.process.tokens import new_token
from serving.process.watch import audit_runs, logs
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest

# Checks at the start


def certificate(folder: Path, days: int = 2, name: str = "c") -> Tls:
    """A certificate for localhost by its own key, good until `days` from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    end = datetime.now(UTC) + timedelta(days=days)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(end - timedelta(days=9)).not_valid_after(end)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    found = Tls(folder / f"{name}.pem", folder / f"{name}.key")
    found.certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    found.key.chmod(0o600)
    return found


@pytest.mark.slow
def test_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port={port}: cannot be listened on at 127.0.0.1"):
            check_listening(Listening("127.0.0.1", port))
        found = dpserve(tmp_path / "home", "serve", "--port", str(port))
    assert found.returncode == 2
    assert f"port={port}" in found.stderr
    assert not (tmp_path / "home").exists()  # refused before a home was made


@pytest.mark.parametrize("host", ["localhost", "example.org", "", "300.1.1.1", "192.0.2.7"])
def test_host_that_is_no_address_of_this_machine(host):
    with pytest.raises(InputError, match="must be an IP address|cannot be listened on"):
        check_listening(Listening(host, free_port()))


def test_address_that_is_free():
    for host in ("127.0.0.1", "0.0.0.0"):
        check_listening(Listening(host, free_port()))


def test_certificate_and_key_that_fit(tmp_path):
    check_listening(Listening("127.0.0.1", free_port(), tls=certificate(tmp_path)))
    assert pair_tls(None, None) is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda tls: tls.key.unlink(), "--tls-key=.*must be a file"),
        (lambda tls: tls.certificate.unlink(), "--tls-cert=.*must be a file"),
        (lambda tls: tls.key.chmod(0o644), "must not be readable by others"),
        (lambda tls: tls.certificate.write_bytes(b"x"), "must be a PEM certificate"),
        (lambda tls: tls.key.write_bytes(certificate(tls.key.parent, name="other").key.read_bytes()), "MISMATCH"),
        (lambda tls: certificate(tls.key.parent, days=-1), "not today; renew it"),
        (lambda tls: certificate(tls.key.parent, days=30), "not today; renew it"),
    ],
)
def test_certificate_that_will_not_do(tmp_path, spoil, message):
    tls = certificate(tmp_path)
    spoil(tls)
    with pytest.raises(InputError, match=message):
        check_listening(Listening("127.0.0.1", free_port(), tls=tls))


def test_certificate_without_key(tmp_path):
    for certificate_file, key in ((tmp_path, None), (None, tmp_path)):
        with pytest.raises(InputError, match="both, or neither"):
            pair_tls(certificate_file, key)


def test_key_under_a_passphrase_is_refused_and_not_asked_for(tmp_path):
    tls = certificate(tmp_path)
    key = serialization.load_pem_private_key(tls.key.read_bytes(), None)
    form = (serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret"))
    tls.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    with pytest.raises(InputError, match="without a passphrase"):
        check_listening(Listening("127.0.0.1", free_port(), tls=tls))


MIB = 1 << 20


def test_as_many_processes_as_memory_goes_for():
    assert fit_workers(None, 1, 512 * MIB) == min(processors(), 4)
    assert fit_workers(4, 1, 512 * MIB) == 4
    assert fit_workers(None, 1, 320 * MIB) == fit_workers(1, 0, 192 * MIB) == 1
    with pytest.raises(InputError, match="5 serving .* 1 training .* 576 MiB.* 512: take --workers 4"):
        fit_workers(5, 1, 512 * MIB)
    with pytest.raises(InputError, match=r"take 320 MiB, and there are 319: give it more"):
        fit_workers(None, 1, 320 * MIB - 1)


def test_what_takes_more_memory_than_there_is_says_so_before_the_start(tmp_path):
    done = dpserve(tmp_path / "home", "serve", "--workers", "100000000")
    assert done.returncode == 2
    assert "100000000 serving processes" in done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o777])
def test_home_that_others_may_enter(tmp_path, mode):
    home = copy(filled(), tmp_path / "home")
    check_place(home)
    home.chmod(mode)
    found = dpserve(home, "serve", "--port", str(free_port())) if mode == 0o755 else None
    with pytest.raises(InputError, match=f"mode {mode:04o}.*chmod 700"):
        check_place(home)
    assert found is None or (found.returncode, "chmod 700" in found.stderr) == (2, True)


def test_folders_of_the_home(tmp_path, monkeypatch):
    home = Home.open(place(copy(filled(), tmp_path / "home")))
    shutil.rmtree(home.path / "logs", ignore_errors=True)
    check_home(home.path)
    assert (home.path / "logs").is_dir()
    models = str(home.models)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != models)  # root may read whatever a mode says
    with pytest.raises(InputError, match="models/ must be readable"):
        check_home(home.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [("DPSERVE_LOG_FORMAT", "xml"), ("DPSERVE_AUDIT_SECONDS", "-1")],
)
def test_setting_that_means_nothing(tmp_path, name, value):
    command = [sys.executable, "-m", "serving.cli", "serve"]
    env = environment(tmp_path / "home", **{name: value})
    found = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 2, found.stderr
    assert name in found.stderr


def test_a_server_counts_in_a_place_of_its_own_and_from_nothing(tmp_path):
    base = {"PROMETHEUS_MULTIPROC_DIR": "x", "KEPT": "1"}
    old = Path(server_environment(base, tmp_path, 3000, 2)["PROMETHEUS_MULTIPROC_DIR"]) / "counter_1.db"
    old.touch()
    found, other = (server_environment(base, tmp_path, port, 2) for port in (3000, 3001))
    assert (found["KEPT"], Path(found["PROMETHEUS_MULTIPROC_DIR"]), old.exists()) == ("1", old.parent, False)
    assert other["PROMETHEUS_MULTIPROC_DIR"] != found["PROMETHEUS_MULTIPROC_DIR"]


# Audits


def test_audit_is_kept_and_says_what_the_command_says(tmp_path):
    home = Home.open(place(copy(filled(), tmp_path / "home")))
    assert audit_runs.last_audit(home) is None
    found = audit_runs.audit_at(home.path, home.ledger.log.database.url)
    assert audit_runs.last_audit(home) == found
    assert (found["ok"], found["problems"], found["entries"]) == (True, [], home.ledger.log.size())
    command = json.loads(dpserve(home.path, "ledger", "audit", "--json").stdout)
    assert {name: command[name] for name in ("entries", "root", "ok", "problems")}.items() <= found.items()


def test_audit_of_a_ledger_that_was_rolled_back(tmp_path):
    """A home that refuses to open has an audit all the same, and it says no."""
    path = copy(filled(), tmp_path / "home")
    mark = path / "keys" / "high-water.json"
    size, root = HighWater(mark).read()
    HighWater(mark).advance(size + 1, root)
    with pytest.raises(LedgerInvalid):
        Home.open(place(path))
    found = audit_runs.audit_at(path, f"sqlite:///{path / 'ledger.db'}")
    assert not found["ok"]
    assert audit_runs.read_last(path) == found


def test_audit_without_a_trust_file_is_a_failed_one(tmp_path):
    path = copy(filled(), tmp_path / "home")
    (path / "trust.json").unlink()
    found = audit_runs.audit_at(path, f"sqlite:///{path / 'ledger.db'}")
    assert (found["ok"], found["entries"]) == (False, 0)
    assert "trust.json" in found["problems"][0]


def test_audit_that_cannot_be_made_keeps_the_last_one(tmp_path):
    home = Home.open(place(copy(filled(), tmp_path / "home")))
    before = audit_runs.audit_at(home.path, home.ledger.log.database.url)
    with pytest.raises(Exception, match="ledger|database|disk"):
        audit_runs.audit_at(home.path, f"sqlite:///{tmp_path / 'no' / 'ledger.db'}")
    assert audit_runs.last_audit(home) == before


def test_result_that_somebody_wrote(tmp_path):
    home = Home.open(place(copy(filled(), tmp_path / "home")))
    (home.path / "logs").mkdir(exist_ok=True)
    for text in ("{", "[]", '{"ok": true}'):
        (home.path / "logs" / "audit.json").write_text(text)
        with pytest.raises(LedgerInvalid, match="audit.json"):
            audit_runs.last_audit(home)


def test_many_problems_are_cut_short():
    found = audit_runs._shorten(tuple(map(str, range(audit_runs.MAX_PROBLEMS + 7))))
    assert len(found) == audit_runs.MAX_PROBLEMS + 1
    assert found[-1].startswith("and 7 more")


# Logs


@pytest.mark.parametrize("form", [logs.JsonLine(), logs.TextLine()])
def test_no_line_holds_what_an_exception_says(form):
    """Neither the message, nor the source line, nor the second line of what a library says."""
    try:
        raise ValueError("row 7 has age 39")
    except ValueError:
        record = logging.LogRecord("dpserve.x", logging.ERROR, "x", 1, "failed %s", ("here",), sys.exc_info())
    line = form.format(record)
    assert "age 39" not in line
    assert "ValueError" in line
    assert "test_operations.py" in line
    assert "failed here" in line
    theirs = logging.LogRecord("asyncio", logging.ERROR, "x", 1, "never retrieved\nValueError('age 39')", (), None)
    assert "age 39" not in form.format(theirs)
    assert "\n" not in line + form.format(theirs)


def test_json_line_has_its_fields():
    found = json.loads(logs.JsonLine().format(logging.LogRecord("dpserve.x", logging.INFO, "x", 1, "said", (), None)))
    assert {name: found[name] for name in ("level", "logger", "message")} == {
        "level": "info",
        "logger": "dpserve.x",
        "message": "said",
    }
    assert datetime.fromisoformat(found["time"]).tzinfo is UTC
    assert found["process"] == os.getpid()


# A server under TLS, with logs in JSON


class Running:
    def __init__(self, home: Home, tls: Tls, process: warm.Popen, port: int, log: Path) -> None:
        self.home, self.process, self.port, self.log = home, process, port, log
        self.trusted = tls.certificate
        self.context = ssl.create_default_context(cafile=tls.certificate)
        self.secret, _ = new_token(home, "test", ["admin"])
        self.client = httpx.Client(verify=self.context, base_url=f"https://localhost:{port}", timeout=300)
        self.client.headers["Authorization"] = f"Bearer {self.secret}"

    def ready(self) -> int | None:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/readyz").status_code
        return None

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("running")
    files, tls, port = write_files(folder / "files"), certificate(folder), free_port()
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    register(
        home, "adult", files / "rows.parquet", files / "schema.yaml", Budget.of(2, "1e-5"), Relation.ADD_REMOVE, None
    )
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}, model="adult"), by="test")
    settings = {"DPSERVE_LOG_FORMAT": "json", "DPSERVE_DRAIN_SECONDS": "1.2", "DPSERVE_WORKERS": "1"}
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port)]
    command += ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
    with (folder / "log").open("wb") as out:
        process = warm.Popen(command, cwd=folder, env=environment(home.path, **settings), stdout=out, stderr=out)
    try:
        found = Running(home, tls, process, port, folder / "log")
        until(lambda: found.ready() == 200, "the server is ready")
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)


@pytest.mark.server
def test_answers_under_tls_alone(running):
    assert running.client.get("/v1/models").json()["models"][0]["model"] == "adult@1"
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{running.port}/livez")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"https://localhost:{running.port}/livez")  # a client that does not know the certificate


@pytest.mark.server
def test_ciphers_of_tls_1_2(running):
    """Forward secrecy and authenticated encryption, or no connection."""
    for ciphers, offered in (("ECDHE+AESGCM", True), ("ECDHE+CHACHA20", True), ("ECDHE+AES:!AESGCM", False)):
        context = ssl.create_default_context(cafile=running.trusted)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)
        plain = socket.create_connection(("127.0.0.1", running.port), timeout=30)
        with plain, contextlib.nullcontext() if offered else pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.server
def test_says_where_it_is_ready(running):
    until(lambda: any("ready, listening on https://" in str(line["message"]) for line in running.lines()), "it is said")


@pytest.mark.server
def test_audits_when_asked(running):
    """None at the start, for DPSERVE_AUDIT_SECONDS is 0 here; so the first is the one that was asked for."""
    assert running.client.get("/v1/audits/last").status_code == 404
    asked = running.client.post("/v1/audits")
    assert (asked.status_code, asked.headers["Location"]) == (202, "/v1/audits/last")
    found = until(lambda: audit_runs.last_audit(running.home), "an audit was made")
    assert running.client.get("/v1/audits/last").json() == found
    assert found["at"] >= asked.json()["asked"]
    assert not audit_runs.is_asked(running.home.path)


@pytest.mark.server
@pytest.mark.system("promtool")
def test_metrics_say_when_the_certificate_ends(running):
    """Two days: each server's own alarm, and no other."""
    audit_runs.audit_at(running.home.path, running.home.ledger.log.database.url)
    page = running.client.get("/metrics").text
    (end,) = re.findall(r"^dpserve_tls_not_after_timestamp_seconds (\S+)$", page, re.M)
    assert float(end) == x509.load_pem_x509_certificate(running.trusted.read_bytes()).not_valid_after_utc.timestamp()
    require_alerts(page, [], of_each=["DpserveCertificateEnds"])


@pytest.mark.server
@pytest.mark.last
def test_stops_gracefully(running):
    """Told to stop it says not ready, still answers, finishes what it has begun to answer, and then goes with 0. Every
    line it has logged is JSON, and none holds a token.
    """
    body = json.dumps({"model": "adult", "records": records(2)}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {running.secret}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    plain = socket.create_connection(("127.0.0.1", running.port), timeout=300)
    with running.context.wrap_socket(plain, server_hostname="localhost") as begun:
        running.process.send_signal(signal.SIGTERM)
        until(lambda: running.ready() == 503, "it says not ready")
        still = running.client.post("/predict", json={"model": "adult", "records": records(1)})
        assert (still.status_code, still.headers["connection"]) == (200, "close")  # who keeps it, asks elsewhere next
        begun.sendall(head.encode() + body[:40])
        until(lambda: any("stopping" in str(line["message"]) for line in running.lines()), "it stops")
        time.sleep(0.3)  # by now the serving process knows
        begun.sendall(body[40:])
        answer = b"".join(iter(lambda: begun.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b'"predictions"' in answer
    assert running.process.wait(300) == 0
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in running.lines())
    assert running.secret not in running.log.read_text()
