"""Causes of alerts, played on a real server: what its `/metrics` says then, and which alerts fire on that."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from decimal import Decimal

import pytest
from alarms import require_alerts
from histories import log_vkey
from prometheus_client.parser import text_string_to_metric_families
from small_home import ROOT, adult_home, dpserve, environment, free_port, running, until
from sqlalchemy import update
from witness_server import Witness

from accountant.home.backup_time import note_backup
from accountant.store.tables import token_table
from training.jobs import job, schedule
from training.requests import JobRequest

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.system("promtool", "unshare")]
ASKED = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.05", "parameters": {"rounds": 5}}
OWN_DISK = 'mount -t tmpfs -o size=64m,mode=0700 tmpfs "$DPSERVE_LOCAL" && exec "$@"'

READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
NOBODY = "http://127.0.0.1:1"  # the server asks its witnesses by itself
COMMAND = [sys.executable, "-m", "serving.cli"]


@pytest.fixture(scope="module")
def witnesses(tmp_path_factory):
    """Begins a witness of a home's log, by its name."""
    folder = tmp_path_factory.mktemp("witnesses")
    with ExitStack() as stack:
        yield lambda home, name: stack.enter_context(Witness(name, folder, [log_vkey(home)]))


@pytest.fixture(scope="module")
def server(tmp_path_factory, witnesses):
    """Doors without a worker; what is of this machine alone lies on a disk of its own, of 64 MB."""
    folder, port = tmp_path_factory.mktemp("watched"), free_port()
    home, local, policy = adult_home(folder, 2), folder / "local", folder / "policy"
    local.mkdir(mode=0o700)
    job.train(home, JobRequest.of(ASKED), by="test")
    policy.write_text(f"{witnesses(home, 'first').line()}quorum first\n")
    settings = {"DPSERVE_LOCAL": str(local), "DPSERVE_WITNESS_POLICY": str(policy), "DPSERVE_JOB_WORKERS": "0"}
    command = ["unshare", "--mount", "sh", "-c", OWN_DISK, "sh", *COMMAND, "serve"]
    command += ["--port", str(port), "--workers", "1"]
    with running(home.path, command, port, folder, subprocess.Popen, DPSERVE_AUDIT_SECONDS="3600", **settings) as found:
        assert dpserve(home.path, "ledger", "witness", "--policy", str(policy)).returncode == 0
        until(lambda: value(found, "dpserve_audit_timestamp_seconds"), "the first audit was made")
        yield found


@pytest.fixture(autouse=True)
def quiet(server):
    """Nothing fires before a cause, and so once the one before is gone."""
    require_alerts(page(server), [])


def page(server) -> str:
    answer = server.ask_again("GET", "/metrics", scope="audit")
    assert answer.status_code == 200
    return answer.text


def value(server, name: str, **labels: str) -> float | None:
    samples = (each for family in text_string_to_metric_families(page(server)) for each in family.samples)
    return next((each.value for each in samples if each.name == name and labels.items() <= each.labels.items()), None)


def test_a_disk_is_nearly_full(server):
    filler = f"/proc/{server.process.pid}/root{server.given['DPSERVE_LOCAL']}/run/filler"
    assert value(server, "dpserve_disk_size_bytes", folder="local") == 64 << 20
    with open(filler, "wb") as file:
        file.write(bytes(60 << 20))
    try:
        free = value(server, "dpserve_disk_free_bytes", folder="local")
        assert (free <= 4 << 20, free % ((64 << 20) // 100)) == (True, 0)  # in hundredths, which tell of no row
        require_alerts(page(server), [], of_each=["DpserveDiskNearlyFull"])
    finally:
        (ROOT / filler).unlink()


def test_a_backup_fails(server, tmp_path):
    copy, yesterday = tmp_path / "copy", time.time() - 27 * 3600
    note_backup(server.path, yesterday)
    copy.mkdir()
    (copy / "other").touch()
    assert dpserve(server.path, "backup", str(copy)).returncode == 2
    assert value(server, "dpserve_backup_timestamp_seconds") == pytest.approx(yesterday)
    require_alerts(page(server), ["DpserveBackupOld"])
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", server.path, *COMMAND, "backup", tmp_path / "other"]
    own = environment(server.path)
    read_only = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert (read_only.returncode, "cannot be written" in read_only.stderr) == (0, True), read_only.stderr
    assert value(server, "dpserve_backup_timestamp_seconds") == pytest.approx(yesterday)
    assert dpserve(server.path, "backup", str(tmp_path / "good")).returncode == 0
    assert value(server, "dpserve_backup_timestamp_seconds") > yesterday + 26 * 3600


def test_before_the_first_backup_the_age_of_the_home_counts(server):
    (server.path / "backed-up.json").unlink(missing_ok=True)
    assert 0 < time.time() - value(server, "dpserve_backup_timestamp_seconds") < 3600


def test_jobs_wait_for_rows(server):
    home, (rows,) = server.home, [path for path in (server.path / "datasets").iterdir() if path.is_dir()]
    submitted = job.submit(home, JobRequest.of(ASKED), by="test")
    rows.rename(rows.with_suffix(".away"))
    try:
        assert dpserve(server.path, "worker", "--once").returncode == 0
        assert value(server, "dpserve_queue_left", why="rows") == 1
        require_alerts(page(server), ["DpserveJobsWaitForRows"])
    finally:
        rows.with_suffix(".away").rename(rows)
    assert dpserve(server.path, "worker", "--once").returncode == 0
    assert home.ledger.job(submitted.seq).public_state == "issued"


def test_a_schedule_is_late_and_then_stops(server):
    """A quota refuses it. Where its dataset is retired, or it is removed, nobody waits for it."""
    home, since = server.home, int(time.time()) - 5400
    schedule.add(home, schedule.make_schedule(home, "hourly", "hour", ASKED, "test", since, token=None))
    assert value(server, "dpserve_schedule_next_timestamp_seconds", schedule="hourly") == since
    require_alerts(page(server), ["DpserveScheduleLate"])
    assert dpserve(server.path, "worker", "--once").returncode == 0
    assert value(server, "dpserve_schedule_last_timestamp_seconds", schedule="hourly") == since + 3600
    assert value(server, "dpserve_schedule_next_timestamp_seconds", schedule="hourly") == since + 7200
    home.ledger.set_quota("adult", "test", Decimal("0.001"), "a test", "steward")
    assert schedule.submit_due(home, lambda: since + 7300) == []
    require_alerts(page(server), ["DpserveScheduleStopped"])
    assert dpserve(server.path, "dataset", "retire", "adult", "--reason", "over").returncode == 0
    require_alerts(page(server), [])
    assert dpserve(server.path, "dataset", "restore", "adult", "--reason", "again").returncode == 0
    require_alerts(page(server), ["DpserveScheduleStopped"])
    assert dpserve(server.path, "schedule", "remove", "hourly").returncode == 0


def test_a_witness_does_not_sign(server, witnesses):
    file, home = server.given["DPSERVE_WITNESS_POLICY"], server.home
    before, second = (ROOT / file).read_text(), witnesses(home, "second")
    either = "group either any first second\nquorum either\n"
    members, away = (before.replace("quorum first\n", line + either) for line in (second.line(), second.line(NOBODY)))
    (ROOT / file).write_text(away)
    assert value(server, "dpserve_witness_timestamp_seconds", witness="second") == 0
    assert value(server, "dpserve_witness_behind_entries", witness="second") == home.ledger.log.size()
    require_alerts(page(server), ["DpserveWitnessBehind"])
    (ROOT / file).write_text("quorum all\n")
    require_alerts(page(server), ["DpserveWitnessBehind"])  # a policy that nobody can read is not no policy
    (ROOT / file).write_text(members)
    assert dpserve(server.path, "ledger", "witness", "--policy", file).returncode == 0
    assert value(server, "dpserve_witness_behind_entries", witness="second") == 0


def test_little_is_left_of_a_budget(server):
    """While a job holds it that waits; it is given back."""
    most = round(value(server, "dpserve_epsilon_one_job", dataset="adult") - 0.001, 3)
    waits = job.submit(server.home, JobRequest.of(ASKED | {"epsilon": str(most)}), by="ana")
    require_alerts(page(server), ["DpserveBudgetNearlySpent"])
    server.home.ledger.release(waits.seq)


def test_a_job_burns(server):
    """It is said for an hour, once."""
    home, before = server.home, page(server)
    burned = job.submit(home, JobRequest.of(ASKED), by="ana")
    home.ledger.start(burned.seq, "owner:1:1", 60.0)
    home.ledger.burn(burned.seq, "failed")
    require_alerts(page(server), ["DpserveJobBurned"], before=before)


def test_a_model_is_revoked_and_retired(server):
    assert dpserve(server.path, "key", "revoke", "adult@1", "--reason", "a test").returncode == 0
    until(lambda: value(server, "dpserve_model_versions", state="revoked") == 1, "it is seen")
    require_alerts(page(server), [])
    assert dpserve(server.path, "model", "retire", "adult@1", "--why", "revoked").returncode == 0


def test_a_row_of_the_database_is_changed(server):
    """The audit finds it, too; the count of it ends with a restart."""
    with server.home.ledger.log.database.writing() as connection:
        changed = update(token_table).where(token_table.c.name == f"predict-{server.port}")
        assert connection.execute(changed.values(scopes="admin")).rowcount == 1
    audited = value(server, "dpserve_audit_timestamp_seconds")
    server.post("/v1/audits", None, scope="audit")
    until(lambda: value(server, "dpserve_audit_timestamp_seconds") > audited, "it is audited")
    until(lambda: value(server, "dpserve_index_mismatches_total", table="token"), "it is seen")
    require_alerts(page(server), ["DpserveAuditFailing", "DpserveIndexChanged"])
