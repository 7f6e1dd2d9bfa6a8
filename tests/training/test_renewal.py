"""A month as one command: rows are appended, a model is trained on them, evaluated and placed; killed between any two
steps it is asked again, and nothing is appended or charged twice.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledgers import place

from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.schedules import LAST_DAY, Schedule
from dpserve_verify.privacy.budget import Budget, Relation
from serving.cli.app import run
from serving.cli.data import blocks, renew
from training.datasets.datasets import register
from training.jobs.schedule import schedules, submit_due
from training.kinds.training_steps import TrainingSteps

ROWS = 400
SCHEMA = """
target: {name: ill, classes: ["no", "yes"]}
records: 400
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  ward: {type: categorical, values: [a, b]}
ignore: [person]
"""
JOB = ["--records", "400", "--learner", "lazybb", "--set", "rounds=4", "--epsilon", "0.2", "--evaluate", "0.25"]
MONTH = [*JOB, "--blocks", "last:2", "--promote"]
STEPS = {  # what a process that is killed was about to do
    "nothing is entered": "accountant.ledger.block_appending.append",
    "the block is entered": "training.jobs.job.submit",
    "the job is reserved": "training.jobs.job.run",
    "the model is certified": "training.jobs.job._run_measurement",
}
KILLED = """
import importlib, os, sys
from serving.cli.app import run
import training.jobs.renewal
name, _, function = sys.argv[1].rpartition(".")
def end(*arguments, **more):
    if len(arguments) < 4 or arguments[3] is None:  # of `append`: the real one, and no rehearsal
        os.kill(os.getpid(), 9)
    return real(*arguments, **more)
module = importlib.import_module(name)
real = getattr(module, function)
setattr(module, function, end)
run(sys.argv[2:])
"""


def month(folder: Path, number: int) -> Path:
    """Rows of a month: people who come again, of an illness that comes with age."""
    law, path = np.random.default_rng(number), folder / f"{number}.parquet"
    age = np.round(law.uniform(0, 100, ROWS), 3)
    ill = np.where(age + law.normal(0, 15, ROWS) > 50, "yes", "no")
    people = law.integers(0, 300, ROWS)
    pq.write_table(pa.table({"person": people, "age": age, "ward": law.choice(["a", "b"], ROWS), "ill": ill}), path)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    for name, value in place(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    made = Home.init()
    (tmp_path / "visits.yaml").write_text(SCHEMA)
    register(
        made, "visits", month(tmp_path, 1), tmp_path / "visits.yaml", Budget.of("2", "0.000001"), Relation.ADD_REMOVE,
        "person", 2, holdout=Decimal("0.2"),
    )  # fmt: skip
    return made


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def kinds(home: Home) -> list[str]:
    return [home.ledger.log.entry(seq).value["type"] for seq in range(home.ledger.log.size())]


def test_a_month_that_is_killed_between_any_two_steps_is_charged_once(home, tmp_path, capsys):
    rows = str(month(tmp_path, 2))
    code, told = ask(capsys, "renew", "visits", "--data", rows, *MONTH, "--plan")
    assert (code, told["window"], told["evaluation"]["window"]) == (0, [1, 2], [1, 2])
    assert "dataset-appended" not in kinds(home)
    for step in STEPS.values():
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, step, "renew", "visits", "--data", rows, *MONTH], env=os.environ, timeout=300
        )
        assert killed.returncode == -signal.SIGKILL, step
    code, done = ask(capsys, "renew", "visits", "--data", rows, *MONTH)
    assert (code, done["block"], done["window"], done["version_state"]) == (0, 2, [1, 2], "champion")
    assert done["evaluated"]["worth"]["better"] in (True, False)
    entries = kinds(home)
    assert [entries.count(kind) for kind in ("dataset-appended", "reserved", "issued", "evaluated")] == [1, 2, 1, 1]
    assert done["left"] == {name: value for name, value in told["left"].items() if name != "jobs"}
    assert ask(capsys, "renew", "visits", "--data", rows, *MONTH)[1]["job"] == done["job"]
    assert len(kinds(home)) == len(entries)
    assert audit_home(home).ok


def test_a_month_that_would_not_be_admitted_appends_nothing(home, tmp_path, capsys):
    """The total of one person over all blocks ends: the month is refused with its rows outside, and the one before it
    is still answered by what stands.
    """
    dear = [*JOB, "--blocks", "last:2", "--epsilon", "0.9"]
    months = [str(month(tmp_path, number)) for number in (2, 3, 4, 5)]
    codes = [ask(capsys, "renew", "visits", "--data", rows, *dear)[0] for rows in months]
    assert codes == sorted(codes)
    made = codes.count(0)
    assert 0 < made < 4
    assert set(codes[made:]) == {3}
    assert home.ledger.dataset("visits").last == 1 + made
    assert ask(capsys, "renew", "visits", "--data", str(month(tmp_path, made + 1)), *dear)[0] == 0
    assert home.ledger.dataset("visits").last == 1 + made
    code, planned = ask(capsys, "renew", "visits", "--data", str(month(tmp_path, 6)), *dear, "--plan")
    assert (code, planned["error"]["code"]) == (3, "budget_refused")


def test_the_plan_of_rows_that_are_a_block_already_says_what_the_renewal_does(home, tmp_path, capsys):
    """The job that stands, free; its plan, where it was not reserved; the refusal of another request, with the remedy,
    which works.
    """
    asked = ["renew", "visits", "--data", str(month(tmp_path, 2)), *MONTH]

    def both(*more: str) -> tuple[int, dict]:
        size = len(kinds(home))
        code, told = ask(capsys, *asked, *more, "--plan")
        assert len(kinds(home)) == size
        done, body = ask(capsys, *asked, *more)
        assert code == done
        if code:
            assert told == body
        return code, told | {"made": body.get("job")}

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.jobs.job.submit", killed)
        run(asked)
    code, told = both()
    assert (code, told["block"], told["window"], "job" in told) == (0, 2, [1, 2], False)
    code, again = both()
    assert (code, again["block"], again["job"]) == (0, 2, told["made"])
    for other in (["--epsilon", "0.3"], ["--evaluate", "0.3"]):
        code, refused = both(*other)
        assert (code, refused["error"]["code"], refused["error"]["details"]["block"]) == (2, "idempotency_conflict", 2)
        for words in ("block 2 of visits already", f"dpserve job show {told['made']}", "--idempotency-key KEY"):
            assert words in refused["error"]["message"]
    code, told = both("--epsilon", "0.3", "--idempotency-key", "KEY")
    assert (code, told["block"], told["window"], told["epsilon"] > "0.29") == (0, 2, [1, 2], True)
    assert told["made"] != again["job"]
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(month(tmp_path, 3).read_bytes()[:-9])
    asked[3] = str(cut)
    assert both()[0] == 2
    assert home.ledger.dataset("visits").last == 2
    assert audit_home(home).ok


def test_what_append_takes_of_rows_renew_takes_in_the_same_words():
    options = [dict(inspect.signature(command).parameters) for command in (blocks.append, renew.renew)]
    assert {"data", "records", "dated", "each_block", "reason", "distinct_ids"} <= options[0].keys()
    for name in options[0].keys() - {"name"}:
        appended, renewed = options[0][name], options[1][name]
        assert appended.default == renewed.default, name
        (one,), (other,) = appended.annotation.__metadata__, renewed.annotation.__metadata__
        assert (one.help, one.param_decls) == (other.help, other.param_decls), name


def test_all_that_is_wrong_with_a_renewal_is_one_refusal(home, tmp_path, capsys):
    """Epsilon, blocks and number of rows left open, half of the days, no reason, and people who have a total already:
    each is named, `append` says its part in the same words, and with all of it mended the renewal goes through.
    """
    assert ask(capsys, "renew", "visits", "--data", str(month(tmp_path, 2)), *JOB, "--blocks", "last:1")[0] == 0
    rows = str(month(tmp_path, 3))
    wrong = ["--dated", "day", "--since", "2026-01-05", "--person-epsilon", "x"]
    code, body = ask(capsys, "renew", "visits", "--data", rows, *wrong)
    assert (code, body["error"]["code"], body["error"]["details"]) == (
        2,
        "answer_missing",
        {"answers": ["--records N"]},
    )
    said = body["error"]["message"].split("; ")
    for start in (
        "epsilon: ",
        "records: ",
        "reason: ",
        "dated: ",
        "person_epsilon='x'",
        "blocks: ",
        "dataset=visits: ",
    ):
        assert sum(text.startswith(start) for text in said) == 1, (start, said)
    code, appended = ask(capsys, "dataset", "append", "visits", "--data", rows, *wrong)
    assert (code, appended["error"]["message"] in body["error"]["message"]) == (2, True)
    assert len(appended["error"]["message"].split("; ")) > 4
    code, body = ask(capsys, "renew", "visits", "--data", rows, *JOB, "--since", "2026-01-05")
    assert (code, body["error"]["code"]) == (2, "bad_input")
    assert ask(capsys, "renew", "visits", "--data", rows, *JOB, "--blocks", "last:1")[0] == 0


@pytest.mark.parametrize("words", [["--each-block"], ["--person-epsilon", "2.5"]])
def test_what_an_append_says_of_people_a_renewal_says_too(home, tmp_path, capsys, words):
    """With a reason alone, which the ledger keeps; asked again, the block that stands answers for nothing. On a dataset
    that grew by --each-block the next month needs it as well.
    """
    asked = [*JOB, "--blocks", "last:1"]
    rows = str(month(tmp_path, 2))
    code, refused = ask(capsys, "renew", "visits", "--data", rows, *asked, *words)
    assert (code, "--reason" in refused["error"]["message"]) == (2, True)
    assert "dataset-appended" not in kinds(home)
    with_reason = [*asked, *words, "--reason", "decision 14"]
    code, planned = ask(capsys, "renew", "visits", "--data", rows, *with_reason, "--plan")
    assert code == 0, planned
    assert planned["window"] == [2, 2]
    code, done = ask(capsys, "renew", "visits", "--data", rows, *with_reason)
    assert (code, done["block"]) == (0, 2)
    person = home.ledger.dataset("visits").person
    assert (person is None) if words == ["--each-block"] else (person.budget.epsilon == Decimal("2.5"))
    size = len(kinds(home))
    assert ask(capsys, "renew", "visits", "--data", rows, *with_reason)[1]["job"] == done["job"]
    assert len(kinds(home)) == size
    code, body = ask(capsys, "renew", "visits", "--data", str(month(tmp_path, 3)), *asked)
    if words == ["--each-block"]:
        assert "--each-block" in body["error"]["message"], (code, body)
        code, body = ask(capsys, "renew", "visits", "--data", str(month(tmp_path, 3)), *with_reason)
    assert (code, body["block"]) == (0, 3)
    assert audit_home(home).ok


def test_a_month_begins_on_its_day_or_on_the_last():
    at = lambda text: int(datetime.fromisoformat(f"{text}+00:00").timestamp())  # noqa: E731
    monthly = Schedule("m", "month", at("2027-10-31T06:00"), "cli:ana", {})
    begins = ["2027-10-31", "2027-11-30", "2027-12-31", "2028-01-31", "2028-02-29", "2028-03-31"]
    for number, day in enumerate(begins):
        moment = at(f"{day}T06:00")
        assert monthly.begin_of(number) == moment
        assert [monthly.period(moment + seconds) for seconds in (-1, 0, 1)] == [number - 1, number, number]
    assert Schedule("m", "month", at("9999-11-30T06:00"), "cli:ana", {}).begin_of(5) == LAST_DAY


def test_one_schedule_appends_the_month_s_file_and_asks_for_its_job(home, tmp_path, capsys, caplog, monkeypatch):
    """Each file once, one job a period; a file that still changes, or does not fit, waits, and nothing of it is told;
    killed between the block and the job, the job is submitted at the next look.
    """
    begins = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    folder = tmp_path / "months"
    folder.mkdir()
    rule = ["schedule", "add", "monthly", "--dataset", "visits", "--every", "month", "--start", "2026-01-01T00:00"]
    code, told = ask(capsys, *rule, *MONTH, "--data", f"{folder}/*.parquet")
    assert (code, told["rows"], told["alone"] > 0) == (0, {"data": f"{folder}/*.parquet", "records": 400}, True)

    def look(days: int) -> list[int]:
        return submit_due(home, lambda: begins + 86_400 * days + 60)

    def bring(number: int, days: int) -> Path:
        path = month(folder, number)
        os.utime(path, (begins + 86_400 * days,) * 2)
        return path

    def blocks() -> int:
        return home.ledger.dataset("visits").last or 1

    assert look(0) == []
    os.utime(bring(2, 1), (begins + 86_400 + 1,) * 2)  # it changed 59 seconds ago
    assert (look(1), blocks()) == ([], 1)
    (first,) = look(2)
    assert (blocks(), home.ledger.reservation(first).value["window"]) == (2, [1, 2])
    bring(3, 3)
    assert (look(4), blocks()) == ([], 2)  # this month had its job
    with monkeypatch.context() as patched:
        patched.setattr(TrainingSteps, "submit", None)  # it ends there
        with pytest.raises(TypeError):
            look(32)
    assert blocks() == 3
    (second,) = look(32)
    assert (blocks(), home.ledger.reservation(second).value["window"]) == (3, [2, 3])
    (folder / "secret.parquet").write_bytes(bring(4, 60).read_bytes()[:-9])
    os.utime(folder / "secret.parquet", (begins,) * 2)
    (third,) = look(61)
    assert blocks() == 4
    assert "a file of its rows cannot be appended" in caplog.text
    assert "secret" not in caplog.text
    assert look(92) == []  # no file has come
    assert schedules(home)[0].stopped is None
    assert len({first, second, third}) == 3
    assert audit_home(home).ok
    code, told = ask(capsys, *rule, *MONTH, "--data", "*.parquet")
    assert (code, told["error"]["message"].partition(":")[0]) == (2, "data='*.parquet'")


def test_a_schedule_appends_with_a_budget_in_each_block_where_its_steward_says_why(home, tmp_path, capsys):
    """The reason stands with the schedule and with each block; without the word the dataset that grew so is refused."""
    begins = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    rule = ["schedule", "add", "monthly", "--dataset", "visits", "--every", "month", "--start", "2026-01-01T00:00"]
    rows, words = ["--data", f"{tmp_path}/[0-9].parquet"], ["--each-block", "--reason", "decision 14"]
    for wrong, start in (([*rows, "--each-block"], "reason: "), (words, "data: "), (["--reason", "x"], "data: ")):
        job = MONTH if "--data" in wrong else MONTH[2:]
        code, refused = ask(capsys, *rule, *job, *wrong)
        assert (code, refused["error"]["message"].startswith(start)) == (2, True), refused
    code, told = ask(capsys, *rule, *MONTH, *rows, *words)
    assert (code, told["rows"]["each_block"]) == (0, "decision 14"), told
    assert ask(capsys, "schedule", "list")[1]["schedules"][0]["rows"] == told["rows"]
    for number, days in ((2, 0), (3, 32)):
        os.utime(month(tmp_path, number), (begins,) * 2)
        (tmp_path / "1.parquet").unlink(missing_ok=True)  # the registered one
        assert len(submit_due(home, lambda days=days: begins + 86_400 * days + 60)) == 1
        appended = [entry.value for entry in home.ledger.log.entries() if entry.value["type"] == "dataset-appended"][-1]
        assert (appended["block"], appended["each_block"]["reason"]) == (number, "decision 14")
    assert home.ledger.dataset("visits").person is None
    code, refused = ask(capsys, *rule[:2], "other", *rule[3:], *MONTH, *rows)
    assert (code, "--each-block --reason TEXT" in refused["error"]["message"]) == (2, True)
    assert audit_home(home).ok


def test_a_schedule_stops_before_rows_that_its_job_could_not_read(home, tmp_path, capsys):
    dear = [*JOB, "--blocks", "last:2", "--epsilon", "1.5"]
    rule = ["schedule", "add", "hourly", "--dataset", "visits", "--every", "hour", "--start", "2026-01-01T00:00"]
    assert ask(capsys, *rule, *dear, "--data", f"{tmp_path}/[0-9].parquet")[0] == 0
    begins = schedules(home)[0].since
    for number in (2, 3):
        os.utime(month(tmp_path, number), (begins, begins))
        submit_due(home, lambda hour=number: begins + 3600.0 * hour)
    (rule_now,) = schedules(home)
    assert "epsilon 1.5 does not fit" in rule_now.stopped
    assert home.ledger.dataset("visits").last == 2
    assert audit_home(home).ok
