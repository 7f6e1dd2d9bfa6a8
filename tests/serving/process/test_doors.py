"""A server that faces the network holds no rows and no issuer's key: it serves, admits jobs and is ready; a worker that
has both runs them. What needs the key is refused before anything is written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
import warm
from small_home import adult_home, environment, serving, until

from accountant.home import Home
from accountant.keys.key_files import check_owner
from dpserve_verify.errors import InputError, KeyInvalid

JOB = {"dataset": "adult", "learner": "ebm", "epsilon": "0.5"}
EDIT = {"edits": [{"feature": "age", "zero": "all"}], "reason": "a review"}


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """A home whose rows and issuer's key are apart, as an earlier dpserve left it: without copies of schemas."""
    folder = tmp_path_factory.mktemp("split")
    home = adult_home(folder, 3)
    shutil.rmtree(home.path / "schemas")
    (folder / "rows").mkdir()
    key = folder / "issuer.pem"
    (home.path / "keys/issuer.pem").rename(key)
    return home.path, folder / "rows", key


def work(home, rows, key) -> dict:
    """A worker, to whom the rows are mounted and the key is given, settles and runs one job."""
    (rows / "datasets").rename(home / "datasets")
    command = [*warm.python(), "-m", "serving.cli", "worker", "--once", "--json"]
    given = environment(home, DPSERVE_ISSUER_KEY=f"file:{key}")
    done = subprocess.run(command, env=given, cwd=home.parent, capture_output=True, text=True, timeout=300)
    (home / "datasets").rename(rows / "datasets")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.server
def test_a_server_without_rows_and_issuer_key_admits_jobs_that_a_worker_runs(split):
    home, rows, key = split
    (home / "datasets").rename(rows / "datasets")
    assert work(home, rows, key)["job"] is None
    with serving(home, 1, DPSERVE_ISSUER_KEY="none", DPSERVE_JOB_WORKERS="0", DPSERVE_UPLOAD_BYTES="0") as server:
        assert (plan := server.post("/v1/plans", JOB)).status_code == 200, plan.text
        asked = server.post("/v1/jobs", JOB)
        assert asked.status_code == 202, asked.text
        ran = work(home, rows, key)
        assert (ran["job"], ran["state"]) == (asked.json()["job"], "committed")
        until(lambda: server.predict().status_code == 200, "the model is served")
        assert len(server.predict(count=3).json()["predictions"]) == 3
        size = server.get("/v1/ledger/checkpoint").text.splitlines()[1]
        refused = server.post("/v1/models/adult/edits", EDIT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "key_invalid"), refused.text
        assert "DPSERVE_ISSUER_KEY=none" in refused.json()["error"]["message"]
        upload = server.post("/v1/drafts", {"name": "more.csv", "bytes": 10})
        assert upload.status_code == 400, upload.text
        assert server.get("/v1/ledger/checkpoint").text.splitlines()[1] == size
        assert server.ready()
    assert not (home / "datasets").exists()
    assert not (home / "keys/issuer.pem").exists()


def test_a_process_without_the_issuers_key_opens_a_home_and_signs_nothing(split, monkeypatch):
    path, _, key = split
    given = {"DPSERVE_HOME": str(path), "DPSERVE_ISSUER_KEY": "none"}
    home = Home.open(given)
    assert (
        home.keys.key("issuer").keyid
        == Home.open({**given, "DPSERVE_ISSUER_KEY": f"file:{key}"}).keys.key("issuer").keyid
    )
    with pytest.raises(KeyInvalid, match="no key to sign certificates"):
        home.keys.signer("issuer")
    with pytest.raises(KeyInvalid, match="issuer.pem: is gone"):  # it is said, and never assumed
        Home.open({**given, "DPSERVE_ISSUER_KEY": ""})
    with pytest.raises(InputError, match="where that key is"):
        Home.init({**given, "DPSERVE_HOME": str(path.parent / "new")})


@pytest.mark.server
def test_a_server_without_the_key_runs_no_jobs_and_makes_no_home(split, tmp_path):
    path, _, _ = split
    for home, workers, message in (
        (path, "1", "must be 0 where DPSERVE_ISSUER_KEY=none"),
        (tmp_path / "new", "0", "dpserve init"),
    ):
        given = environment(home, DPSERVE_ISSUER_KEY="none", DPSERVE_JOB_WORKERS=workers)
        command = [*warm.python(), "-m", "serving.cli", "serve", "--port", "1"]
        done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "new" / "keys").exists()


def stat(mode: int, user: int, group: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, user, group, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "user", "group", "fine"),
    [(0o440, 0, 10001, True), (0o400, 0, 0, True), (0o440, 0, 0, False), (0o444, 0, 10001, False),
     (0o460, 0, 10001, False), (0o440, 10001, 10001, False), (0o400, 10001, 10001, True), (0o400, 7, 10001, False)],
)  # fmt: skip
def test_a_mounted_secret_is_of_root_and_read_by_our_group(monkeypatch, mode, user, group, fine):
    """As Kubernetes mounts a Secret for `fsGroup`."""
    for name, value in (("geteuid", 10001), ("getegid", 10001), ("getgroups", [10001])):
        monkeypatch.setattr(os, name, lambda value=value: value)
    try:
        check_owner(stat(mode, user, group), "issuer.pem", 0o077, mounted=True)
    except KeyInvalid:
        assert not fine
    else:
        assert fine


def test_of_several_that_make_a_home_at_once_one_does_and_all_go_on(tmp_path):
    home = tmp_path / "home"
    command = [*warm.python(), "-m", "serving.cli", "init", "--if-absent", "--json"]
    many = {"env": environment(home), "cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, **many) for _ in range(4)]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in started]
    assert [code for _, _, code in ended] == [0] * 4, ended
    assert {json.loads(out)["origin"] for out, _, _ in ended} == {
        Home.open({"DPSERVE_HOME": str(home)}).ledger.log.origin
    }
    assert sum(b"first-token" in err for _, err, _ in ended) == 1
