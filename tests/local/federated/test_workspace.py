"""What is written for NVFlare: a site that runs two classes and no shipped code, and a job of configuration alone."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pages import part

from dpserve_verify.errors import InputError
from local.federated import words, workspace

ROOT = Path(__file__).resolve().parents[3]
MADE = {
    "format_version": 2,
    "class_list_enforcement_mode": "warn",
    "class_allow_list": ["*"],
    "allow_log_streaming": True,
    "components": [{"id": "site_log_streamer"}, {"id": "process_launcher"}],
}


@pytest.fixture
def site(tmp_path):
    local = tmp_path / "north" / "local"
    local.mkdir(parents=True)
    (local / "resources.json.default").write_text(json.dumps(MADE))
    rules = {"format_version": "1.0", "permissions": {"project_admin": "any", "lead": {"byoc": "any"}}}
    (local / "authorization.json.default").write_text(json.dumps(rules))
    return tmp_path / "north"


def test_a_guarded_site_runs_two_classes_keeps_its_logs_and_lets_nobody_bring_code(site):
    workspace.guard(site)
    resources = json.loads((site / "local" / "resources.json").read_text())
    assert resources["class_allow_list"] == [words.ASKING, words.INSTITUTION]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert resources["components"] == [{"id": "process_launcher"}]
    permissions = json.loads((site / "local" / "authorization.json").read_text())["permissions"]
    assert set(permissions) == {"project_admin", "lead", "org_admin", "member"}
    for role, may in permissions.items():
        assert may == {"view": "any"} if role == "member" else may["byoc"] == may["shell_commands"] == "none"


def test_the_two_classes_are_where_their_names_say():
    """Without nvflare neither can be imported; their files are read."""
    for path in (words.ASKING, words.INSTITUTION):
        module, _, name = path.rpartition(".")
        found = importlib.util.find_spec(module)
        assert found is not None
        assert f"class {name}(" in Path(str(found.origin)).read_text()


def test_a_job_is_configuration_alone_and_says_nothing_to_an_institution(tmp_path):
    workspace.write_job(tmp_path / "job", "survey", ["north", "south"], 9)
    files = sorted(path.relative_to(tmp_path / "job").as_posix() for path in (tmp_path / "job").rglob("*.*"))
    assert files == ["app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json"]
    client = json.loads((tmp_path / "job" / files[0]).read_text())
    assert [each["executor"] for each in client["executors"]] == [{"path": words.INSTITUTION, "args": {}}]
    server = json.loads((tmp_path / "job" / files[1]).read_text())
    assert server["workflows"][0]["args"] == {"campaign": "survey", "sites": ["north", "south"], "seconds": 9}


def test_the_pages_commands_do_what_it_says(site, tmp_path):
    page = part("docs/reference/institutions.md", "Over NVFlare")
    commands = [line.split() for line in page.splitlines() if line.startswith("python -m local.federated")]
    assert [command[3] for command in commands] == ["guard", "job", "job"]
    for command in commands:
        subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True)
    assert (site / "local" / "resources.json").exists()
    for job in ("job", "rounds"):
        server = json.loads((tmp_path / job / "app" / "config" / "config_fed_server.json").read_text())
        assert server["workflows"][0]["args"]["sites"] == ["north", "south", "west"]


def test_what_is_not_right_is_refused(tmp_path, site):
    with pytest.raises(InputError, match="provision it"):
        workspace.guard(tmp_path)
    with pytest.raises(InputError, match="different ones"):
        workspace.write_job(tmp_path / "job", "survey", ["north", "north"])
    with pytest.raises(InputError, match="is there already"):
        workspace.write_job(site, "survey", ["north"])
    command = [sys.executable, "-m", "local.federated", "guard", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.startswith("error: site=")) == (2, True)
