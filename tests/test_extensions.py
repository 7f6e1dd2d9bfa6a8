"""The core without what is beside it: every command works that needs no extension, and who needs one is told so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from core_alone import core_alone, run_alone, run_each
from small_home import DATA, free_port, running, write_files

from accountant.home import Home
from accountant.system import extensions
from serving.cli.app import CORE, TREE

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "naive_bayes.py"
BY_BAYES = ("--learner", "outside", "--set", "code=bayes")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return core_alone(tmp_path_factory.mktemp("core") / "alone")


@pytest.fixture(scope="module")
def trained(python, tmp_path_factory):
    """A home that the core alone made: a dataset, and a model of it."""
    home = tmp_path_factory.mktemp("alone") / "home"
    files = write_files(home.parent / "files")
    require_done(
        run_each(
            python,
            home,
            ["init"],
            ["dataset", "register", "adult", "--data", str(files / "rows.parquet"), "--schema",
             str(files / "schema.yaml"), "--epsilon", "3", "--delta", "0.00001", "--as-read"],
            ["train", "adult", "--learner", "ebm", "--epsilon", "1", "--model", "m"],
        )
    )  # fmt: skip
    return home


def require_done(results):
    assert [code for code, _, _ in results] == [0] * len(results), results


def size_of(home):
    """How many entries its ledger has."""
    return Home.open({"DPSERVE_HOME": str(home)}).ledger.log.size()


def test_no_module_and_no_entry_point_of_an_extension_is_there(python, tmp_path):
    look = (
        "import importlib.util; from accountant.system.extensions import entry_points\n"
        "every = ('local', 'dpserve_cluster', 'dpserve_platform')\n"
        "print([name for name in every if importlib.util.find_spec(name)], entry_points())"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", look], cwd=tmp_path, env=kept, capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "[] ()", done.stderr


@pytest.mark.slow
def test_the_core_alone_predicts_and_audits(python, trained):
    out = trained.parent / "out.csv"
    predict = ["predict", "m", "--data", str(DATA / "adult_test.parquet"), "--out", str(out)]
    others = [["ledger", "audit"], ["dataset", "list"], ["job", "list"], ["model", "show", "m"]]
    results = run_each(python, trained, ["--help"], predict, *others)
    require_done(results)
    assert not any("campaign" in printed for _, printed, _ in results)
    assert len(out.read_text().splitlines()) > 1000


@pytest.mark.parametrize(
    ("command", "name"), [("campaign", "parties"), ("institution", "parties"), ("learner check", "platform")]
)
def test_a_command_of_an_extension_says_what_brings_it(command, name, python, tmp_path):
    assert command in extensions.EXTENSIONS[name].commands
    done = run_alone(python, tmp_path / "home", *command.split(), "show", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "bad_input"
    assert done.stderr.strip().endswith(f"pip install ./dpserve_{name}-*.whl")


def test_the_commands_that_extensions_name_are_those_that_they_bring():
    top, learner = TREE.keys() - CORE.keys(), TREE["learner"].leaves.keys() - {"list", "show"}
    named = {command for extension in extensions.EXTENSIONS.values() for command in extension.commands}
    assert named == {*top, *(f"learner {name}" for name in learner)}


def test_a_cluster_without_its_extension_is_refused_before_the_charge(python, trained):
    words = ("train", "adult", "--learner", "lazybb", "--epsilon", "0.5", "--model", "n")
    size = size_of(trained)
    done = run_alone(python, trained, *words, DPSERVE_ENGINE="dask://127.0.0.1:1")
    assert done.returncode == 2
    assert "dpserve-cluster: not installed here; it does jobs over rows on several hosts" in done.stderr
    assert size_of(trained) == size


@pytest.fixture(scope="module")
def admitted(trained):
    """The same home, where a steward with the extension admitted a learner of others and trained a model by it."""
    admit = ["learner", "admit", f"{EXAMPLE}:NaiveBayes", "--name", "bayes", "--reason", "two read it"]
    train = ["train", "adult", *BY_BAYES, "--epsilon", "0.5", "--model", "b"]
    require_done(run_each(Path(sys.executable), trained, [*admit, "--neighbours", "2"], train))
    return trained


def test_a_learner_of_others_without_its_extension_is_refused_before_the_charge(python, admitted):
    size = size_of(admitted)
    commands = (
        ["plan", "adult", *BY_BAYES, "--epsilon", "0.1"],
        ["train", "adult", *BY_BAYES, "--epsilon", "0.1", "--model", "c"],
        ["learner", "list"],
        ["learner", "show", "bayes"],
    )
    for code, printed, error in run_each(python, admitted, *commands):
        assert (code, printed) == (2, ""), error
        assert "dpserve-platform: not installed here; it does learners of others" in error
        assert error.strip().endswith("pip install ./dpserve_platform-*.whl")
    assert size_of(admitted) == size
    assert run_alone(python, admitted, "learner", "show", "lazybb").returncode == 0


def test_a_model_of_a_learner_of_others_verifies_and_predicts_without_its_extension(python, admitted):
    test, out = str(DATA / "adult_test.parquet"), str(admitted.parent / "of-others.csv")
    verify, predict = ["verify", str(admitted / "models" / "b" / "1")], ["predict", "b", "--data", test, "--out", out]
    lists = [["model", "show", "b"], ["job", "list"], ["ledger", "audit"]]
    require_done(run_each(python, admitted, verify, predict, *lists))


@pytest.mark.server
def test_the_core_alone_serves(python, trained):
    port = free_port()
    command = [str(python), "-m", "serving.cli", "serve", "--port", str(port), "--workers", "1"]
    with running(trained, command, port, trained.parent, PYTHONPATH="") as server:
        assert server.predict("m").status_code == 200
        for name in ("campaigns", "learners"):
            assert f"/ui/{name}" not in server.get("/ui").text
            assert server.get(f"/ui/{name}").status_code == 404
            assert not any(f"/{name}" in path for path in server.get("/docs.json").json()["paths"])
        assert server.get("/v1/campaigns/survey", scope=None).status_code == 401
        assert server.get("/v1/campaigns/survey").status_code == 404


def test_a_home_of_campaigns_is_not_served_without_them(python, trained):
    """In one sentence that names what is missing; nothing else of the home is hindered."""
    kept = trained / "campaigns" / "survey" / "job.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    try:
        done = run_alone(python, trained, "serve", "--port", str(free_port()))
        assert (done.returncode, done.stdout) == (2, "")
        assert "dpserve-parties: not installed here; it does campaigns" in done.stderr
        assert run_alone(python, trained, "job", "list").returncode == 0
    finally:
        kept.unlink()
        kept.parent.rmdir()
        kept.parent.parent.rmdir()


def test_commands_of_the_core_read_no_entry_points(trained):
    """What is installed is looked at where a command is none of the core's, or all are listed."""
    look = (
        "import sys; from serving.cli.app import run; run(sys.argv[1:])\n"
        "from accountant.system.extensions import entry_points; print(entry_points.cache_info().currsize)"
    )
    for words, read in (
        (["dataset", "list"], "0"),
        (["learner", "show", "lazybb"], "0"),
        (["campaign", "--help"], "1"),
    ):
        environment = {**os.environ, "DPSERVE_HOME": str(trained)}
        command = [sys.executable, "-c", look, *words]
        done = subprocess.run(command, env=environment, cwd=trained.parent, capture_output=True, text=True)
        assert done.stdout.strip().endswith(read), (words, done.stdout, done.stderr)


def test_what_an_extension_brings_stands_where_it_did():
    names = list(TREE)
    at = names.index("campaign")
    assert names[at - 1 : at + 5] == ["job", "campaign", "aggregator", "institution", "owner", "model"]
    assert list(TREE["learner"].leaves) == ["list", "show", "check", "admit", "remove"]


def test_of_two_distributions_of_one_name_the_first_on_the_path_counts(tmp_path, monkeypatch):
    for folder, version, module in (("first", "2", "one"), ("second", "1", "two")):
        info = tmp_path / folder / f"dpserve_toy-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dpserve-toy\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[dpserve.toys]\ntoy = {module}:TOY\n[console_scripts]\na = b:c\n")
    other = tmp_path / "first" / "numpy_toy-1.dist-info"
    other.mkdir()
    (other / "entry_points.txt").write_text("[dpserve.toys]\nother = three:TOY\n")
    (tmp_path / "first" / "one.py").write_text("TOY = 'first'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    caches = (extensions.entry_points, extensions.load)
    for each in caches:
        each.cache_clear()
    try:
        assert extensions.load("toys") == ("first",)
        assert extensions.is_installed("toy")
        assert not extensions.is_installed("other")
    finally:
        for each in caches:
            each.cache_clear()


def test_every_extension_of_this_repository_is_installed_here():
    assert [name for name in extensions.EXTENSIONS if not extensions.is_installed(name)] == []
