"""The server's settings: what each takes, refuses, and is without a variable. Light commands do not read them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from small_home import environment, write_files

from dpserve_verify.errors import InputError
from serving.process.config.settings import ServerSettings, all_settings, variable_of

NUMBERS = ("-1", "many", "1e3", "1.5", "٣", " 3", "0x10", "1_000", "9" * 20, "True")
RUBBISH = {
    "port": (*NUMBERS, "0", "65536"),
    "grpc": (*NUMBERS, "65536"),
    "workers": (*NUMBERS, "0"),
    "log_format": ("xml", "JSON", "text ", "0"),
    "audit_seconds": (*NUMBERS, "9999999999"),
    "drain_seconds": ("-1", "many", "nan", "inf", "-inf", "1 s", "1_0", "\u0661"),
    "job_workers": (*NUMBERS, "1001"),
    "worker": (*NUMBERS, "2"),
    "models_in_memory": (*NUMBERS, "0"),
    "without_ledger_seconds": (*NUMBERS, "9", "86401"),
    "metrics_versions": ("none", "ALL", "1"),
    "trail_bytes": (*NUMBERS, "0", str(2**53)),
    "trail_files": (*NUMBERS, "0"),
    "upload_bytes": (*NUMBERS, str(2**41)),
    "data_folders": ("rows", "/srv:rows", "../rows"),
    "sso": ("https://a", "a?client=x&url=https://b", "https://a?client=x&url=https://b&more=1"),
}
GOOD = {
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("4000", 4000),
    "grpc": ("4001", 4001),
    "workers": ("3", 3),
    "tls_cert": ("chain.pem", "chain.pem"),
    "tls_key": ("key.pem", "key.pem"),
    "log_format": ("json", "json"),
    "audit_seconds": ("0", 0),
    "drain_seconds": ("2.5", 2.5),
    "job_workers": ("0", 0),
    "worker": ("0", 0),
    "models_in_memory": ("7", 7),
    "without_ledger_seconds": ("10", 10),
    "metrics_versions": ("all", "all"),
    "trail_bytes": ("1", 1),
    "trail_files": ("3", 3),
    "upload_bytes": ("0", 0),
    "data_folders": ("/srv/a:/srv/b", "/srv/a:/srv/b"),
    "sso": ("https://a?client=x&url=https://b",) * 2,
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in ServerSettings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)


def test_every_setting_is_tried_here():
    assert GOOD.keys() == ServerSettings.model_fields.keys()
    assert ServerSettings.model_fields.keys() - RUBBISH.keys() == {
        "host",
        "tls_cert",
        "tls_key",
    }  # texts: startup looks


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RUBBISH.items() for value in values])
def test_rubbish_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(variable_of(name), value)
    with pytest.raises(InputError, match=f"^{variable_of(name)}="):
        ServerSettings()


@pytest.mark.parametrize("name", GOOD)
def test_variable_is_read_as_its_type(monkeypatch, name):
    text, value = GOOD[name]
    monkeypatch.setenv(variable_of(name), text)
    found = getattr(ServerSettings(), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("name", GOOD)
def test_empty_variable_and_one_in_small_letters_are_none(monkeypatch, name):
    monkeypatch.setenv(variable_of(name), "")
    monkeypatch.setenv(variable_of(name).lower(), "rubbish")
    assert getattr(ServerSettings(), name) == ServerSettings.model_fields[name].default


def test_flag_goes_before_the_variable_and_is_read_as_strictly(monkeypatch):
    monkeypatch.setenv("DPSERVE_AUDIT_SECONDS", "7")
    assert ServerSettings.with_flags(audit_seconds="9").audit_seconds == 9
    with pytest.raises(InputError, match="^DPSERVE_AUDIT_SECONDS="):
        ServerSettings.with_flags(audit_seconds="-1")


def test_all_are_told_with_their_defaults():
    found = {setting.name: (setting.value, setting.source) for setting in all_settings({"DPSERVE_PORT": "4000"})}
    assert found["DPSERVE_PORT"] == ("4000", "environment")
    assert found["DPSERVE_DRAIN_SECONDS"] == ("2", "default")
    assert found["DPSERVE_TRAIL_BYTES"] == ("100000000", "default")
    assert {variable_of(name) for name in ServerSettings.model_fields} <= found.keys()


def test_light_commands_do_not_wait_for_it(tmp_path):
    program = (
        "import sys, serving.cli.app; print([name for name in sys.modules if name.startswith('pydantic_settings')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


WITHOUT_A_HOME = """
import os, pwd, sys
def nobody(uid):
    raise KeyError(uid)  # as of a number that no list of users knows
pwd.getpwuid = nobody
os.environ.pop("HOME")
sys.argv = ["dpserve", *sys.argv[1:]]
from serving.cli.app import main
main()
"""


def test_a_user_without_a_home_needs_none_where_every_folder_is_named(tmp_path):
    """It registers rows, whose packing is compiled; where a folder is not named, it is said which variable names it."""
    files, named = write_files(tmp_path / "files"), {"DPSERVE_HOME": str(tmp_path / "home"), "HOME": "/"}
    without = [sys.executable, "-c", WITHOUT_A_HOME]
    rows = ["--data", files / "rows.parquet", "--schema", files / "schema.yaml"]
    register = ["dataset", "register", "adult", *rows, "--epsilon", "5", "--delta", "1e-5", "--unit", "record"]
    for command, named_too, code in ((["init"], {}, 0), (register, {}, 0), (["config"], {"DPSERVE_HOME": ""}, 2)):
        env = environment(tmp_path / "home") | named | named_too
        env = {name: value for name, value in env.items() if not name.startswith("XDG_")}
        done = subprocess.run([*without, *command], env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
    assert "DPSERVE_HOME: must name a folder; this user" in done.stderr
