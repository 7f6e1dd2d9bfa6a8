"""Private tuning on the platform: one job, one price, one certificate; what is refused; and what a kill costs."""

from __future__ import annotations

import json
import signal
import subprocess
from decimal import Decimal
from pathlib import Path

import ledgers
import pytest
import warm
from small_home import ROOT, environment, write_files

from accountant.audit.audit import audit_home
from accountant.errors import IdempotencyConflict, JobFailed, UnknownName
from accountant.home import Home
from accountant.privacy.claims import claim, price
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.selection import Poisson
from models.store.loading import load_verified
from serving.cli import app
from training.datasets.datasets import register
from training.jobs import job
from training.planning import plans
from training.requests import JobRequest, TuningRequest
from training.tuning import selecting
from training.tuning.tune import tuned_of

pytestmark = pytest.mark.slow

GRID = {"rounds": [3, 6], "rate": ["0.2", "0.4"]}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return write_files(tmp_path_factory.mktemp("files"))


def home_of(folder: Path, files: Path, delta: str = "0.000001") -> Home:
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    total = Budget.of("3", delta)
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None)
    return home


@pytest.fixture
def home(tmp_path, files) -> Home:
    return home_of(tmp_path, files)


def asked(grid=None, runs=2, **changes) -> JobRequest:
    fields = {"dataset": "adult", "learner": "lazybb", "epsilon": "1", "tuning": TuningRequest(grid or GRID, runs)}
    return JobRequest(**{**fields, **changes})


@pytest.mark.parametrize("delta", ["0.000001", "0"])
def test_a_tuned_job_from_rows_to_a_verified_model(tmp_path, files, delta):
    home = home_of(tmp_path, files, delta)
    planned, before = plans.plan(home, asked()), home.ledger.log.size()
    assert home.ledger.dataset("adult").most_used.used == home.ledger.dataset("adult").most_used.filter.nothing()
    answer = job.train(home, asked(), by="test")
    entries = [entry.value for entry in home.ledger.log.entries(before)]
    assert [entry["type"] for entry in entries] == ["reserved", "started", "committed", "issued"]
    dataset, plan = home.ledger.dataset("adult"), planned.recipe.plan
    assert entries[0]["plan"] == plan.to_json()
    assert (dataset.most_used.used,) == planned.costs == (price(plan, dataset.most_used.filter.orders),)
    found = load_verified(home.models / "adult" / "1", home.trust).certificate
    assert found.epsilon == claim(plan, Decimal(delta)).epsilon == Decimal(answer["epsilon"]) <= 1
    assert found.epsilon > Decimal("0.999")
    predicate = found.statement["predicate"]
    (line,) = predicate["mechanisms"]
    assert line["event"]["type"] == "repeat-and-select"
    assert predicate["accounting"]["coversTuning"] is True
    tuning = json.loads(predicate["public"]["hyperparameters"]["private-tuning"])
    assert tuning["grid"] == {"rounds": [3, 6], "rate": ["0.2", "0.4"]}
    assert audit_home(home, ledgers.bundles(home.path)).problems == ()


def test_what_is_said_of_the_number_of_runs_is_public(home, monkeypatch):
    """Whatever number is drawn, the same is told: progress, entries, answer, but for times and numbers released."""
    seen = []
    for index, runs in enumerate((1, 4)):
        monkeypatch.setattr(selecting, "draw_runs", lambda law, runs=runs: runs)
        told: list[tuple[int, int]] = []
        model, before = f"m{index}", home.ledger.log.size()
        answer = job.train(home, asked(runs=3, model=model), by="test", progress=lambda *at, told=told: told.append(at))
        kinds = [sorted(entry.value) for entry in home.ledger.log.entries(before)]
        stored = {each.name for each in (home.models / model / "1").iterdir()}
        seen.append((told, kinds, sorted(answer), answer["progress"], stored, sorted(answer["chosen"])))
    assert seen[0] == seen[1]
    # Of three on average: no test that makes fewer runs than are told has priced it in this process.
    most = plans.plan(home, asked(runs=3)).to_json()["tuning"]["runs"]["made"]
    assert seen[0][0] == [(most, most)]
    assert seen[0][3] == {"done": most, "total": most}


def test_when_a_run_ends_is_told_to_nobody(home, monkeypatch):
    """A run's time would name its setting; only the setting of the best is released. Neither over the doors nor on the
    terminal of whoever started it: what the bar is told, it is told after the last run."""
    runs, run = [], selecting.BestOf._run
    monkeypatch.setattr(selecting.BestOf, "_run", lambda *given: (runs.append(1), run(*given))[1])
    seen = []
    job.train(home, asked(model="bar"), by="test", progress=lambda *at: seen.append((len(runs), *at)))
    assert seen == [(len(runs), len(runs), len(runs))]
    told, kept = [], job.Lease.progress
    monkeypatch.setattr(job.Lease, "progress", lambda self, done: (told.append(done), kept(self, done)))
    job.train(home, asked(model="quiet"), by="test")
    assert told == []
    job.train(home, JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 3}), by="test")
    assert told[-1] == len(told) >= 3


def test_the_chosen_setting_is_told_with_the_model(home, monkeypatch):
    monkeypatch.setattr(selecting, "draw_runs", lambda law: 3)
    monkeypatch.setattr(selecting, "most_runs", lambda law: 3)
    answer = job.train(home, asked({"rounds": [3, 6]}, parameters={"threshold": "false"}), by="test")
    chosen = answer["chosen"]
    votes = load_verified(home.models / "adult" / "1", home.trust).ensemble.votes
    assert chosen["setting"] == {"rounds": len(votes)}
    assert isinstance(chosen["score"], int)
    monkeypatch.setattr(selecting, "draw_runs", lambda law: 0)
    nothing = job.train(home, asked(model="nothing"), by="test")
    assert nothing["state"] == "issued"
    assert nothing["chosen"] == {"setting": None, "score": None}


def test_a_plain_job_says_nothing_of_tuning(home):
    answer = job.train(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 3}), by="test")
    assert "chosen" not in answer
    assert "tuning" not in plans.plan(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 3})).to_json()


def test_one_key_spends_once_and_stands_for_its_grid(home, monkeypatch):
    monkeypatch.setattr(selecting, "most_runs", lambda law: 1)
    first = job.train(home, asked(), by="test", key="k")
    assert job.train(home, asked(), by="test", key="k") == first
    with pytest.raises(IdempotencyConflict):
        job.train(home, asked({"rounds": [3, 7]}), by="test", key="k")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tuning": {"grid": {}}}, "1 settings; from 2 to 64"),
        ({"tuning": {"grid": {"rounds": [5]}}}, "1 settings"),
        ({"tuning": {"grid": {"rounds": list(range(1, 36)), "rate": [0.1, 0.2]}}}, "70 settings"),
        ({"tuning": {"grid": {"rounds": []}}}, "must have values"),
        ({"tuning": {"grid": {"rounds": "57"}}}, "must be a list"),
        ({"tuning": {"grid": {"depth": [1, 2]}}}, "grid depth: lazybb takes"),
        ({"tuning": {"grid": {"epsilon": ["1", "2"]}}}, "never tuned"),
        ({"tuning": {"grid": {"delta": ["0", "0.1"]}}}, "never tuned"),
        ({"tuning": {"grid": {"relation": ["add-remove", "replace-one"]}}}, "never tuned"),
        ({"tuning": {"grid": {"schema": ["a", "b"]}}}, "never tuned"),
        ({"tuning": {"grid": {"rounds": [5, "5"]}}}, "twice"),
        ({"tuning": {"grid": {"rounds": [5, "many"]}}}, "rounds='many'"),
        ({"tuning": {"grid": {"rounds": [5, 0]}}}, "rounds=0"),
        ({"tuning": {"grid": {"rounds": [5, 6]}}, "parameters": {"rounds": 7}}, "fixed as well"),
        ({"tuning": {"grid": {"rounds": [5, 6]}}, "parameters": {"private-tuning": "{}"}}, "lazybb takes"),
        ({"tuning": None, "parameters": {"private-tuning": "{}"}}, "lazybb takes"),
        ({"tuning": {"grid": GRID, "runs": 0}}, "runs=0"),
        ({"tuning": {"grid": GRID, "runs": 65}}, "runs=65"),
        ({"tuning": {"grid": GRID, "runs": "nan"}}, "runs=nan"),
        ({"tuning": {"grid": GRID, "runs": "1.0000000001"}}, "at most 9 decimals"),
        ({"epsilon": "0"}, "epsilon=0"),
    ],
)
def test_bad_grids_change_nothing(home, changes, problem):
    before = home.ledger.log.size()
    with pytest.raises(InputError, match=problem):
        job.train(home, asked(**changes), by="test")
    assert home.ledger.log.size() == before


def test_an_unknown_learner(home):
    with pytest.raises(UnknownName):
        plans.plan(home, asked(learner="none"))


def test_a_job_beyond_the_budget_is_refused_with_what_would_fit(home):
    before = home.ledger.log.size()
    with pytest.raises(BudgetRefused) as refused:
        job.train(home, asked(epsilon="9"), by="test")
    assert home.ledger.log.size() == before
    fits = refused.value.details["would_fit"]["epsilon"]
    assert Decimal(fits) == 3  # the whole total, once
    plans.plan(home, asked(epsilon=fits))


@pytest.mark.parametrize(("settings", "mean"), [(2, 5), (3, 6), (4, 8), (30, 8)])
def test_by_default_runs_follow_the_grid(settings, mean):
    grid = {"rounds": list(range(1, settings + 1))}
    assert tuned_of("lazybb", {}, TuningRequest(grid), pure=False).distribution == Poisson(Decimal(mean))
    assert float(tuned_of("lazybb", {}, TuningRequest(grid), pure=True).distribution.mean) == pytest.approx(
        mean, rel=1e-6
    )


def test_default_in_a_grid_is_the_learner_s_own(home):
    lines = plans.plan(home, asked({"rounds": [3, "default"]})).to_json()["tuning"]["settings"]
    assert [line["rounds"] for line in lines] == [3, None]
    assert lines[1]["releases"] > 5


def test_a_failure_in_a_run_burns_and_leaves_nothing(home, monkeypatch):
    def broken(self, rows):
        raise ValueError("secret 4711")

    monkeypatch.setattr(selecting.CorrectRows, "__call__", broken)
    with pytest.raises(JobFailed) as failed:
        job.train(home, asked(), by="test")
    assert "4711" not in json.dumps(failed.value.to_json())
    (held,) = home.ledger.jobs()
    assert held.state == "burned"
    assert home.ledger.dataset("adult").most_used.used.rdp[0] > 0
    assert left_behind(home) == []


def left_behind(home: Home) -> list[str]:
    """What jobs left in their folder, but for locks."""
    return [each.name for each in home.jobs.iterdir() if not each.name.endswith(".lock")] if home.jobs.exists() else []


KILLED = """
import os, signal, sys
from accountant.home import Home
from training.jobs import job
from training.kinds import training_steps
from training.requests import JobRequest, TuningRequest
from training.tuning import selecting
where, number = sys.argv[1], int(sys.argv[2])
owner, name = {"run": (selecting.BestOf, "_run"), "choice": (training_steps, "keep_choice")}[where]
true, calls = getattr(owner, name), []

def deadly(*arguments):
    calls.append(1)
    answer = true(*arguments)
    if len(calls) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

setattr(owner, name, deadly)
tuning = TuningRequest({"rounds": [3, 6]}, 2)
job.train(Home.open(), JobRequest("adult", "lazybb", "1", tuning=tuning), by="test")
"""


@pytest.mark.parametrize(("where", "number"), [("run", 2), ("choice", 1)])
def test_killed_between_runs_all_is_spent_and_nothing_is_left(home, where, number):
    command = [*warm.python(), "-c", KILLED, where, str(number)]
    done = subprocess.run(command, env=environment(home.path), cwd=ROOT, timeout=300)
    assert done.returncode == -signal.SIGKILL
    (held,) = home.ledger.jobs()
    assert held.state == "started"
    assert home.ledger.dataset("adult").most_used.used.rdp[0] > 0
    assert job.recover(home)["burned"] == [held.seq]
    assert left_behind(home) == []
    assert not list(home.models.glob("*/*"))
    spent = home.ledger.dataset("adult").most_used.used
    plan = plans.plan(home, asked({"rounds": [3, 6]})).recipe.plan
    assert spent == price(plan, home.ledger.dataset("adult").most_used.filter.orders)
    assert audit_home(home, ledgers.bundles(home.path)).problems == ()


def test_the_command(home, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    monkeypatch.setattr(selecting, "most_runs", lambda law: 1)

    def tune(*arguments: str) -> tuple[int, str, str]:
        code = app.run(["tune", "adult", "--learner", "lazybb", "--epsilon", "1", *arguments])
        return code, *capsys.readouterr()

    size = home.ledger.log.size()
    code, out, _ = tune("--grid", "rounds=3,6", "--runs", "2", "--plan", "--json")
    assert code == 0
    assert [line["rounds"] for line in json.loads(out)["tuning"]["settings"]] == [3, 6]
    code, out, _ = tune("--grid", "rounds=3,6", "--runs", "2", "--explain")
    assert (code, "ROUNDS" in out, home.ledger.log.size()) == (0, True, size)
    code, out, _ = tune("--grid", "rounds=3,6", "--runs", "2", "--set", "rate=0.3", "--model", "tuned")
    assert (code, "done" in out, "setting" in out) == (0, True, True)
    assert (home.models / "tuned" / "1").is_dir()
    for bad in ([], ["--grid", "rounds"], ["--grid", "rounds=3,,6"], ["--grid", "rounds=3,6", "--grid", "rounds=4,5"]):
        code, _, err = tune(*bad)
        assert (code, "--grid" in err) == (2, True), err


def test_the_door_takes_a_grid():
    body = {"dataset": "adult", "learner": "lazybb", "epsilon": 1}
    found = JobRequest.of({**body, "tuning": {"grid": {"rounds": [3, Decimal("6")]}, "runs": 4}})
    assert found.tuning == TuningRequest({"rounds": [3, Decimal("6")]}, 4)
    assert JobRequest.of(body).tuning is None
    for bad in (
        {},
        {"grid": {"rounds": 3}},
        {"grid": {"rounds": [[3]]}},
        {"grid": {"rounds": list(range(65))}},
        {"grid": {"rounds": [Decimal("1e99999999")]}},
        {"grid": {"rounds": [3, 6]}, "runs": Decimal("1e99999999")},
        {"grid": {"rounds": [3, 6]}, "more": 1},
    ):
        with pytest.raises(InputError):
            JobRequest.of({**body, "tuning": bad})
