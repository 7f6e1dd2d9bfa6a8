"""The command line for somebody who has read nothing: what to do next, also after errors; jobs, colours, completion."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import typer
from small_home import ROOT, dpserve, environment, write_files

from accountant import errors
from accountant.home import Home
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, KeyInvalid
from serving.cli import terminal
from serving.cli.app import app, run
from serving.cli.complete import DATASETS, LEARNERS, MODELS, NAMES
from serving.cli.hints import next_step
from training.jobs.job import submit
from training.learners import LEARNERS as KNOWN
from training.requests import JobRequest

pytestmark = [pytest.mark.slow, pytest.mark.home("made", folder=True)]

FEW = {"rounds": 5}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def made(tmp_path_factory, files):
    """A home with a dataset, and the names of two models, which are never opened here."""
    path = tmp_path_factory.mktemp("made") / "home"
    words = ["--data", str(files / "rows.parquet"), "--schema", str(files / "schema.yaml"), "--epsilon", "3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(path))
        assert run(["init"]) == 0
        assert run(["dataset", "register", "adult", *words, "--delta", "1e-5"]) == 0
    return path


@pytest.fixture
def said(capsys):
    """Run a command: (exit code, stdout as JSON, stderr)."""

    def call(*arguments):
        capsys.readouterr()
        code = run([*arguments, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return call


# What to do next


def follow(body, word):
    """The words of the step that has this word."""
    (command,) = [step["command"] for step in body["next"] if f" {word} " in f"{step['command']} "][:1]
    return shlex.split(command.split(">")[0])[1:]


def test_the_first_run_needs_no_documentation(tmp_path, files, monkeypatch, said):
    """Each step is one that `dpserve` alone names, up to a model that is trained."""
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(files)
    code, body, err = said()
    assert (code, body["state"], err) == (0, "none", "")
    assert run(follow(body, "init")) == 0
    _, body, _ = said()
    assert (body["state"], body["datasets"]) == ("empty", [])
    code, drafted, err = said(*follow(body, "schema"))
    assert code == 0
    assert "FILL-IN" in drafted["schema"]
    assert "FILL-IN" in err
    shutil.copy("schema.yaml", "adult.yaml")
    assert run(follow(body, "register")) == 0
    _, body, _ = said()
    assert (body["state"], body["datasets"], body["models"]) == ("registered", ["adult"], [])
    assert run(follow(body, "show")) == 0
    assert run(follow(body, "plan")) == 0
    assert run([*follow(body, "train"), "--set", "epochs=4"]) == 0
    _, body, _ = said()
    assert (body["state"], body["models"]) == ("released", ["adult"])
    assert run(follow(body, "--certificate")) == 0
    assert run(follow(body, "export")) == 0
    assert run(["verify", "adult-model"]) == 0
    assert run(follow(body, "token")) == 0
    assert run(follow(body, "audit")) == 0
    assert "/ui" in next(step["what"] for step in body["next"] if step["command"] == "dpserve serve")


def test_every_step_that_is_named_is_a_command(home, monkeypatch, tmp_path, said):
    bodies = [said()[1]]
    (home / "models" / "adult" / "1").mkdir(parents=True)
    bodies.append(said()[1])
    (home / "keys" / "issuer.pem").unlink(missing_ok=True)
    for key in (home / "keys").iterdir():
        key.chmod(0o644)
    bodies.append(said()[1])
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "none"))
    bodies.append(said()[1])
    assert [body["state"] for body in bodies] == ["registered", "released", "broken", "none"]
    assert bodies[2]["problem"]
    known = dict(commands())
    for step in (step for body in bodies for step in body["next"]):
        words = shlex.split(step["command"].split("dpserve", 1)[1].split(">")[0])
        name = next(tuple(words[:length]) for length in (2, 1) if tuple(words[:length]) in known)
        options = {word for word in words if word.startswith("--")}
        assert options <= {opt for each in known[name].params for opt in each.opts}, step


def test_the_page_for_people(home, capsys):
    assert run([]) == 0
    out, err = capsys.readouterr()
    assert "dpserve train adult --epsilon 0.5" in out
    assert "dpserve --help" in out
    assert err == ""
    assert run(["--version"]) == 0
    assert re.fullmatch(r"dpserve \S+\n", capsys.readouterr().out)
    assert run(["--json", "dataset", "list"]) == 2
    assert "after the command" in capsys.readouterr().err


# Errors


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (errors.UnknownName("dataset=x: no such dataset", dataset="x"), "dpserve dataset list"),
        (errors.UnknownName("model='x': there is no such model"), "dpserve model list"),
        (errors.UnknownName("learner='x': no such learner"), "dpserve learner list"),
        (errors.UnknownName("name='x': no token of that name is good"), "dpserve token list"),
        (errors.UnknownName("base=7: no certificate was issued by that entry"), ""),
        (KeyInvalid("issuer.pem: mode=0644: must have none of the bits 0077"), "chmod"),
        (KeyInvalid("home=x: has keys already"), "`dpserve`"),
        (errors.SchemaError("schema: still FILL-IN: records"), ""),
        (errors.NameTaken("dataset=x: is registered already; a budget is given once"), "dpserve dataset show"),
        (errors.UnknownName("job=7: no such job", job=7), "dpserve job list"),
        (errors.SchemaError("schema=x.yaml: cannot be read"), "dpserve schema draft"),
        (errors.IdempotencyConflict("idempotency_key='k': came before"), "--idempotency-key"),
        (CertificateInvalid("x"), "dpserve ledger audit"),
        (errors.LedgerInvalid("x"), "dpserve ledger audit"),
        (BudgetRefused("x", would_fit={"epsilon": "0.5"}), "--epsilon 0.5"),
        (BudgetRefused("x", would_fit=None), "dpserve dataset show"),
        (errors.JobFailed("x"), "dpserve dataset show"),
        (errors.InputError("home=x: run `dpserve init` first"), ""),
        (errors.NameTaken("x"), ""),
    ],
)
def test_an_error_says_the_next_step(error, step):
    assert step in next_step(error)
    assert bool(step) is bool(next_step(error))


def test_a_wrong_word_is_answered_with_the_right_one(home, capsys):
    for words, right in (
        (["trian"], "train"),
        (["dataset", "shwo"], "show"),
        (["plan", "adult", "--lerner"], "--learner"),
    ):
        assert run(words) == 2
        err = capsys.readouterr().err
        assert right in err
        assert err.count("\n") == 1
    assert run(["plan", "adult", "--learner", "nope", "--epsilon", "1"]) == 2
    assert "lazybb-tree" in capsys.readouterr().err
    assert run(["plan", "nope", "--learner", "lazybb", "--epsilon", "1"]) == 2
    assert "dpserve dataset list" in capsys.readouterr().err


# Jobs


def test_jobs_are_listed_shown_cancelled(home, said, capsys):
    opened = Home.open({"DPSERVE_HOME": str(home)})
    seqs = [submit(opened, JobRequest("adult", "lazybb", "0.1", parameters=FEW), by="test").seq for _ in range(3)]
    _, body, err = said("job", "list", "--limit", "2")
    assert [line["job"] for line in body["jobs"]] == seqs[:0:-1]
    assert f"--after {body['next']}" in err
    assert [line["job"] for line in said("job", "list", "--after", str(body["next"]))[1]["jobs"]] == seqs[:1]
    code, body, _ = said("job", "cancel", str(seqs[1]))
    assert (code, body["state"]) == (0, "released")
    assert said("job", "show", str(seqs[1]))[1] == body
    assert [line["job"] for line in said("job", "list", "--state", "released")[1]["jobs"]] == [seqs[1]]
    assert said("job", "watch", str(seqs[1]))[1] == body
    assert said("job", "cancel", str(seqs[1]))[1]["error"]["code"] == "wrong_state"
    assert said("job", "show", "99")[1]["error"]["code"] == "unknown_name"
    assert said("job", "list", "--state", "nothing")[0] == 2
    assert said("job", "list", "--dataset", "nope")[0] == 2
    opened.ledger.start(seqs[0], "test:1:0.00", 60.0)
    opened.ledger.burn(seqs[0], "failed")
    code, body, _ = said("job", "watch", str(seqs[0]))
    assert (code, body["state"]) == (5, "burned")
    assert run(["job", "list"]) == 0
    assert "failed" in capsys.readouterr().out


def test_learners_say_what_they_take(said, capsys):
    _, body, _ = said("learner", "list")
    assert tuple(sorted(each["name"] for each in body["learners"])) == NAMES
    _, body, _ = said("learner", "show", "lazybb")
    assert "rounds" in [parameter["name"] for parameter in body["parameters"]]
    assert run(["learner", "show", "lazybb"]) == 0
    assert "by a public rule" in capsys.readouterr().out
    code, body, err = said("learner", "show", "nope")
    assert (code, body["error"]["code"]) == (2, "unknown_name")
    assert "dpserve learner list" in err


def test_a_draft_that_is_not_filled_in_says_where(home, files, tmp_path, said):
    _, body, _ = said("schema", "draft", str(files / "rows.parquet"))
    (tmp_path / "draft.yaml").write_text(body["schema"].replace("records: FILL-IN", "records: 2000"))
    words = ["--data", str(files / "rows.parquet"), "--schema", str(tmp_path / "draft.yaml"), "--epsilon", "1"]
    code, body, err = said("dataset", "register", "other", *words, "--delta", "1e-5")
    assert (code, body["error"]["code"]) == (2, "schema_invalid")
    assert "features.age.range" in err
    assert "target.name" in err
    assert "records" not in err
    (tmp_path / "draft.yaml").write_text("features: &a {x: [*a, FILL-IN], y: *a}\ntarget: *a\n")
    code, body, err = said("dataset", "register", "other", *words, "--delta", "1e-5")
    assert (code, body["error"]["code"]) == (2, "schema_invalid")


# Colours and progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "colours"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),  # as no-color.org says
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_stand_only_where_they_belong(monkeypatch, stream, variables, colours):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal.has_colours(stream) is colours
    assert ("\x1b" in terminal.paint("x", "bad", stream)) is colours
    assert terminal.paint("", "bad", stream) == ""


def test_heading_is_painted_after_it_is_aligned(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    painted = terminal.align_columns([("NAME", "LEFT"), ("adult-income", "3")])
    monkeypatch.setenv("NO_COLOR", "1")
    assert re.sub(r"\x1b\[\d+m", "", painted) == terminal.align_columns([("NAME", "LEFT"), ("adult-income", "3")])
    assert painted.startswith("\x1b[1mNAME")


@pytest.mark.parametrize("variables", [{"NO_COLOR": ""}, {"NO_COLOR": "1"}])
def test_on_a_terminal_there_is_progress_and_stdout_stays_clean(home, tmp_path, variables):
    """Standard error is a terminal; standard output a file."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "serving.cli", "ledger", "audit", "--json"]
    where = {**environment(home, **variables), "TERM": "xterm"}
    done = subprocess.run(command, cwd=tmp_path, env=where, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # how the end of a terminal is told
        while chunk := os.read(ours, 4096):
            seen += chunk
    os.close(ours)
    assert json.loads(done.stdout)["ok"] is True
    assert b"audit" in seen
    assert (re.search(rb"\x1b\[[\d;]*3\dm", seen) is None) is bool(variables["NO_COLOR"])


# Completion


def test_names_are_completed(home, monkeypatch, tmp_path):
    for name in ("adult/1", "adult/2", "spare/1", ".partial/1"):
        (home / "models" / name).mkdir(parents=True)
    assert DATASETS("") == DATASETS("ad") == ["adult"]
    assert DATASETS("x") == []
    assert MODELS("adult") == ["adult", "adult@1", "adult@2", "adult@champion"]
    assert MODELS("s") == ["spare", "spare@1", "spare@champion"]
    assert LEARNERS("lazy") == ["lazybb", "lazybb-tree"]
    assert tuple(sorted(KNOWN)) == NAMES
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "none"))
    assert (DATASETS(""), MODELS("")) == ([], [])
    assert not (tmp_path / "none").exists()
    monkeypatch.setenv("DPSERVE_LEDGER_URL", "nonsense://x")
    assert DATASETS("") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dpserve dataset sh", {"show"}),
        ("dpserve dataset show ", {"adult"}),
        ("dpserve plan adult --learner laz", {"lazybb", "lazybb-tree"}),
    ],
)
def test_a_shell_completes(home, tmp_path, words, expected):
    where = {"_DPSERVE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    command = [sys.executable, "-m", "serving.cli"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(home, **where), capture_output=True, text=True)
    assert set(done.stdout.split()) == expected
    assert done.stderr == ""


# The tree


def test_lists_say_what_the_docstrings_say():
    root = typer.main.get_command(app)
    listed = {name: root.get_command(None, name) for name in root.list_commands(None)}
    assert {name: command.get_short_help_str(60) for name, command in listed.items()} == {
        name: command.get_short_help_str(60) for name, command in root.commands.items()
    }


def test_help_loads_the_module_of_no_command():
    look = "import sys; from serving.cli.app import run; run(['--help']); "
    look += "print(sorted(m for m in sys.modules if m.startswith('serving.cli.')), 'sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = [f"serving.cli.{name}" for name in ("app", "backends", "backends.choice", "hints", "terminal", "tree")]
    assert done.stdout.splitlines()[-1] == f"{loaded} False"


# The contract


def commands():
    def walk(group, before):
        for name, command in sorted(group.commands.items()):
            if hasattr(command, "commands"):
                yield from walk(command, (*before, name))
            else:
                yield (*before, name), command

    return list(walk(typer.main.get_command(app), ()))


CONTRACT = """
init
dataset register --data --schema --epsilon --delta --relation --unit
dataset list
dataset show
schema draft
plan --learner --epsilon --delta --set
train --learner --epsilon --delta --set --model --idempotency-key
model list
model show
model explain --out
model export --out
model edit
predict --data --out
verify --trust
ledger show --dataset
ledger audit
ledger checkpoint
ledger export --out
key list
key rotate
key mark-compromised
serve --port --workers
token create --scope --name
config
"""


@pytest.mark.parametrize("line", CONTRACT.strip().splitlines())
def test_what_users_rely_on_is_there(line):
    words = line.split()
    name = tuple(word for word in words if not word.startswith("--"))
    found = dict(commands())[name]
    assert set(words) - set(name) <= {option for each in found.params for option in each.opts}


def test_json_is_everywhere():
    """But for what runs until it is told to stop and has no --once."""
    without = {
        name for name, found in commands() if "--json" not in {opt for each in found.params for opt in each.opts}
    }
    assert without == {("serve",), ("mcp",), ("institution", "start")}


def test_one_audit_as_json(home, said):
    done = dpserve(home, "auditor", "--once", "--json")
    assert (json.loads(done.stdout)["ok"], done.returncode) == (True, 0)
    for word in ("worker", "auditor"):
        assert said(word)[0] == 2


def test_in_a_process_of_its_own(tmp_path):
    done = dpserve(tmp_path / "home")
    assert (done.returncode, done.stderr) == (0, "")
    assert "dpserve init" in done.stdout
    assert "\x1b" not in done.stdout
    look = "import sys; from serving.cli.app import run; run([]); "
    look += "print({'numba', 'sklearn', 'bentoml'} & sys.modules.keys())"
    command = [sys.executable, "-c", look]
    done = subprocess.run(command, cwd=ROOT, env=environment(tmp_path / "home"), capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"
