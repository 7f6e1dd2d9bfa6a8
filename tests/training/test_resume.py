"""A job whose process was killed goes on in another one: what was drawn is not drawn again, the model is what it would
have been, and it costs nothing more. Where that cannot be known it is burned, as without.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import ledgers
import pytest
import resume_driver
from crash_driver import ASKED, Driver
from ledgers import copy, place, prepared

from accountant.audit.audit import audit_home
from accountant.errors import JobFailed
from accountant.home import Home
from accountant.ledger.job_rows import MAX_RESUMES
from accountant.noise import mechanisms
from dpserve_verify.errors import InputError
from training.jobs import draw_journal, job
from training.jobs.draw_journal import DrawJournal
from training.kinds import training_steps
from training.kinds.stated_steps import StatedSteps
from training.planning import plans
from training.requests import EvaluationRequest, JobRequest, ProfileRequest, TuningRequest

pytestmark = pytest.mark.slow
NOTHING = {"burned": [], "released": [], "finished": [], "stuck": []}


@pytest.fixture(scope="module")
def driver():
    found = Driver(resume_driver.__file__, DPSERVE_RESUME="1")
    yield found
    found.close()


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DPSERVE_RESUME", "1")
    return copy(prepared(), tmp_path / "home")


def kept(home: Path) -> Path:
    (found,) = home.glob("jobs/*/answers")
    return found


def entries(opened: Home, kind: str) -> list[dict]:
    return [each.value for each in opened.ledger.log.entries() if each.value["type"] == kind]


def made(home: Path) -> list[dict]:
    """What all processes drew, in order."""
    return [json.loads(line) for each in home.parent.glob("made") for line in each.open()]


def settled(home: Path) -> tuple[Home, dict[str, list[int]]]:
    """By this process; whatever came of it, one job was charged once, and the ledger is sound."""
    opened = Home.open(place(home))
    found = job.recover(opened)
    (only,) = opened.ledger.jobs()
    assert only.state.value in ("committed", "burned")
    assert job.recover(opened) == NOTHING
    assert not list(home.glob("jobs/*/*"))
    assert audit_home(opened, ledgers.bundles(home)).problems == ()
    planned = plans.plan(Home.open(place(copy(prepared(), home.parent / "planned"))), ASKED)
    assert opened.ledger.dataset("adult").most_used.used.pure == planned.costs[0].pure
    return opened, found


RESUMED = [
    "training.kinds.job_steps:open_rows:before:1",
    "training.kinds.job_steps:open_rows:after:1",
    "training.session.session:Session.release:before:1",
    "training.session.session:Session.release:after:1",
    "training.session.session:Session.release:after:5",
    "training.session.session:_release:after:6",  # before rows are asked
    "training.jobs.draw_journal:DrawJournal._write:after:1",  # what the answers are of
    "training.jobs.draw_journal:DrawJournal._write:before:2",  # before the first draw
    "training.jobs.draw_journal:DrawJournal._write:after:3",  # an answer that no learner has seen
    "training.jobs.draw_journal:DrawJournal._write:after:9",
    "training.session.session:Session.close:after:1",
    "training.kinds.training_steps:keep:before:1",
    "training.kinds.training_steps:keep:after:1",
    "accountant.ledger.ledger:Ledger.commit:before:1",
    "accountant.store.store:Tree.append:after:3",  # the entry of the commit, not committed itself
]
BURNED = [
    "accountant.ledger.ledger:Ledger.start:after:1",  # nothing says what would be resumed
    "training.jobs.draw_journal:DrawJournal._write:before:1",  # an empty file
    "training.jobs.draw_journal:DrawJournal._write:after:2",  # a draw was said to be made
    "training.jobs.draw_journal:DrawJournal._write:before:3",  # it was made, and not kept
    "training.jobs.draw_journal:_encode:before:4",
    "accountant.noise.mechanisms:ExponentialSelection.draw:before:1",
    "accountant.noise.mechanisms:ExponentialSelection.draw:after:3",
]


@pytest.mark.parametrize("point", [*RESUMED, *BURNED, "accountant.ledger.ledger:Ledger.commit:after:1"])
def test_killed_at(driver, home, point):
    """Real processes and real kills; nothing is ever drawn twice."""
    assert driver.run("train", home, point) is None
    before = [json.loads(line.rpartition(" ")[0]) for each in home.glob("jobs/*/answers") for line in each.open()]
    assert driver.run("recover", home) == 0
    opened, _ = settled(home)
    (only,) = opened.ledger.jobs()
    drawn = [each["draw"] for each in made(home) if "draw" in each]
    if point in BURNED:
        assert (only.state.value, entries(opened, "resumed")) == ("burned", [])
        assert drawn == list(range(len(drawn)))
        return
    assert only.issued is not None
    assert drawn == list(range(only.total))  # each once, in order, by whichever process
    went_on = [each["times"] for each in entries(opened, "resumed")]
    assert went_on == ([] if "commit:after" in point else [1])
    answered = {each["answer"]: each for each in made(home) if "answer" in each}
    assert all(each == answered[each["answer"]] for each in before if "answer" in each)
    assert model_of(home) == unkilled(home, [answered[at] for at in range(only.total)])


def test_it_goes_on_where_the_ledger_is_another_process(driver, tmp_path, monkeypatch):
    """PostgreSQL: killed in the middle, and again in the transaction of the commit."""
    monkeypatch.setenv("DPSERVE_RESUME", "1")
    home = ledgers.copy_on_postgresql(ledgers.prepared_on_postgresql(), tmp_path / "home")
    assert driver.run("train", home, "training.session.session:Session.release:after:5") is None
    assert driver.run("recover", home, "accountant.store.store:Tree.append:after:2") is None
    opened, found = settled(home)
    (only,) = opened.ledger.jobs()
    assert (found["finished"], [each["draw"] for each in made(home) if "draw" in each]) == (
        [only.seq],
        [*range(only.total)],
    )
    assert [each["times"] for each in entries(opened, "resumed")] == [1, 2]
    opened.ledger.log.database.close()


def model_of(home: Path) -> bytes:
    return (home / "models" / "adult" / "1" / "ensemble.json").read_bytes()


def unkilled(home: Path, stored: list[dict]) -> bytes:
    """The model of a run that nobody killed and whose draws came out just so."""
    other = copy(prepared(), home.parent / "unkilled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "DrawJournal", lambda *_: Told([draw_journal._decode(each) for each in stored]))
        job.train(Home.open(place(other)), ASKED, by="test")
    return model_of(other)


class Told(DrawJournal):
    """Draws, and answers what it was told: the first `kept` without a draw, as after a crash."""

    def __init__(self, told: list, kept: int = 0) -> None:
        self._told, self._kept, self._next, self._fd = told, kept, 0, None

    def begin(self) -> None:
        pass

    @property
    def is_kept(self) -> bool:
        return self._next < self._kept

    def next(self, draw):
        at, known, self._next = self._next, self.is_kept, self._next + 1
        if not known:
            draw()
        return self._told[at]

    def end(self) -> None:
        pass


LEARNERS = {
    "lazybb": {"rounds": 8},
    "lazybb-tree": {"trees": 3},
    "bdpe": {"rounds": 3},
    "ebm": {"epochs": 2},
    "forest": {"trees": 3},
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_is_asked_of_rows_does_not_depend_on_who_asked_before(tmp_path, monkeypatch, learner):
    """The exact answers behind a resumed run are those of a run that began at the start, for every learner: what a
    process keeps in memory of the rows is made again from what was released.
    """
    exact: list[list] = []
    for kind in (mechanisms.ExponentialSelection, mechanisms.ExponentialSelections, mechanisms.PermuteAndFlip,
                 mechanisms.PermuteAndFlips, mechanisms.DiscreteLaplace, mechanisms.DiscreteGaussian):  # fmt: skip

        def noted(self, values, sensitivity, draw=kind.draw):
            exact.append([type(self).__name__, sensitivity, values.tolist()])
            return draw(self, values, sensitivity)

        monkeypatch.setattr(kind, "draw", noted)
    told: list = []

    class Noting(DrawJournal):
        def next(self, draw):
            told.append(super().next(draw))
            return told[-1]

    def run(name: str) -> bytes:
        opened = Home.open(place(copy(prepared(), tmp_path / name)))
        asked = JobRequest("adult", learner, "0.5", parameters=parameters)
        job.train(opened, asked, by="test")
        opened.ledger.log.database.close()
        return model_of(opened.path)

    parameters = {name: value for name, value in LEARNERS[learner].items() if takes(learner, name)}
    monkeypatch.setattr(job, "DrawJournal", Noting)
    whole = run("whole")
    all_exact, count = list(exact), len(told)
    assert len(all_exact) == count > 2
    for kept in sorted({1, count // 2, count - 1}):
        exact.clear()
        monkeypatch.setattr(job, "DrawJournal", lambda *_, kept=kept: Told(told, kept))
        assert run(f"kept-{kept}") == whole
        assert exact == all_exact[kept:]


def takes(learner: str, name: str) -> bool:
    from training.learners.docs import learners_to_json

    (found,) = [each for each in learners_to_json() if each["name"] == learner]
    return name in {each["name"] for each in found["parameters"]}


def test_evaluations_and_profiles_go_on_too(home, monkeypatch):
    """Ended by an error that no job catches, as an interrupt is: the process lives, and does not run it any more."""
    opened = Home.open(place(home))
    job.train(opened, ASKED, by="test")
    for asked in (
        EvaluationRequest("adult", "adult", "0.1", "training"),
        ProfileRequest("adult", "0.1", columns=("age",)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(StatedSteps, "keep", interrupted)
            with pytest.raises(KeyboardInterrupt):
                job.measure(opened, asked, by="test")
        assert kept(home).stat().st_mode & 0o777 == 0o600
        seq = opened.ledger.jobs()[-1].seq
        assert job.recover(opened)["finished"] == [seq]
        assert opened.ledger.job(seq).issued is not None
    assert len(entries(opened, "resumed")) == 2
    assert audit_home(opened, ledgers.bundles(home)).problems == ()


def interrupted(*_):
    raise KeyboardInterrupt


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def edited(change):
    def edit(path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(change(lines)))

    return edit


def copied(path: Path) -> None:
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def linked(path: Path) -> None:
    path.replace(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


HARM = {
    "a bit": flipped,
    "the last line cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "the last byte cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "an answer short": edited(lambda lines: lines[:-1]),
    "fewer than were told of": edited(lambda lines: lines[:-2]),
    "two lines exchanged": edited(lambda lines: [lines[0], *lines[3:5], *lines[1:3], *lines[5:]]),
    "a line twice": edited(lambda lines: [*lines, lines[-1]]),
    "a line left out": edited(lambda lines: [*lines[:3], *lines[5:]]),
    "no head": edited(lambda lines: lines[1:]),
    "nothing": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff" * 100 + b"\n"),
    "another file": copied,
    "another time": lambda path: os.utime(path, (1, 1)),
    "a link": linked,
    "gone": Path.unlink,
}


@pytest.fixture(scope="module")
def cut(driver, tmp_path_factory) -> Path:
    """A job that was killed when four of its releases were made, and the ledger told of four."""
    home = copy(prepared(), tmp_path_factory.mktemp("cut") / "home")
    assert driver.run("train", home, "training.session.session:Session.release:after:4") is None
    with ledgers.raw(home) as connection:
        connection.execute("UPDATE job SET done = 4")
    return home


def copied_whole(home: Path, to: Path) -> Path:
    """As if it had been there: its answers are of the file that is there now."""
    whole = copy(home, to)
    opened, path = Home.open(place(whole)), kept(whole)
    lines = [json.loads(line.rpartition(" ")[0]) for line in path.read_text().splitlines()]
    path.unlink()
    seq = int(path.parent.name)
    with DrawJournal(opened, seq) as again:
        again.begin()
        for line in lines[2::2]:
            again.next(lambda line=line: draw_journal._decode(line))
    opened.ledger.log.database.close()
    return whole


@pytest.mark.parametrize("harm", [None, *HARM])
def test_what_is_damaged_is_not_believed(cut, tmp_path, harm):
    """Unharmed, it goes on."""
    home = copied_whole(cut, tmp_path / "home")
    if harm is not None:
        HARM[harm](kept(home))
    opened = Home.open(place(home))
    (only,) = opened.ledger.jobs()
    assert job.recover(opened) == NOTHING | {"finished" if harm is None else "burned": [only.seq]}
    assert not list(home.glob("jobs/*/*"))
    assert audit_home(opened, ledgers.bundles(home)).problems == ()


@pytest.mark.parametrize("what", ["code", "start of the machine", "no start that is told", "another job"])
def test_what_is_of_another_code_machine_or_job_is_not_believed(cut, tmp_path, monkeypatch, what):
    home = copied_whole(cut, tmp_path / "home")
    (tmp_path / "boot").write_text("" if what.startswith("no") else "another\n")
    if what == "code":
        monkeypatch.setattr(draw_journal, "code", lambda: "0" * 64)
    elif what == "another job":
        monkeypatch.setattr(type(Home.open(place(home)).ledger), "reservation_hash", lambda *_: "0" * 64)
    else:
        monkeypatch.setattr(draw_journal, "BOOT", tmp_path / "boot")
    opened = Home.open(place(home))
    assert job.recover(opened)["burned"] == [opened.ledger.jobs()[0].seq]
    assert entries(opened, "resumed") == []


def test_a_home_that_was_copied_draws_nothing_again(driver, home, tmp_path):
    """A copy of what was cut, on the same machine: the original goes on, the copy is burned, whoever is first."""
    assert driver.run("train", home, "training.session.session:Session.release:after:4") is None
    other = copy(home, tmp_path / "other" / "home")
    opened = Home.open(place(other))
    assert job.recover(opened)["burned"]
    assert settled(home)[1]["finished"]


def test_one_goes_on_and_the_others_leave_it(cut, tmp_path):
    """Whoever holds the answers is at it; and of many who look at the same moment one does it."""
    home = copied_whole(cut, tmp_path / "home")
    opened = Home.open(place(home))
    (only,) = opened.ledger.jobs()
    with DrawJournal.reopen(opened, only.seq, 4):
        assert job.recover(opened) == NOTHING
    assert opened.ledger.job(only.seq).state == "started"
    homes, found = [Home.open(place(home)) for _ in range(4)], []
    threads = [threading.Thread(target=lambda each=each: found.append(job.recover(each))) for each in homes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each["times"] for each in entries(opened, "resumed")] == [1]
    assert opened.ledger.job(only.seq).issued is not None
    assert audit_home(opened, ledgers.bundles(home)).problems == ()


def test_who_stands_still_holds_its_answers_and_the_job_is_burned(cut, tmp_path, monkeypatch):
    """Seen from where nobody can tell whether the process lives, when its lease is over: it may wake up and draw."""
    home = copied_whole(cut, tmp_path / "home")
    opened = Home.open(place(home))
    (only,) = opened.ledger.jobs()
    monkeypatch.setattr(job, "lives", lambda owner: None)
    with DrawJournal.reopen(opened, only.seq, 4):
        assert job.recover(opened)["burned"] == [only.seq]
    assert entries(opened, "resumed") == []


def test_a_job_that_ends_everybody_comes_to_its_end(driver, home):
    assert driver.run("train", home, "training.session.session:Session.release:after:4") is None
    for _ in range(MAX_RESUMES):
        assert driver.run("recover", home, "training.jobs.job:_run_started:before:1") is None
    opened, found = settled(home)
    assert found["burned"]
    assert [each["times"] for each in entries(opened, "resumed")] == list(range(1, MAX_RESUMES + 1))


def test_killed_again_and_again_it_draws_each_once(driver, home):
    assert driver.run("train", home, "training.session.session:Session.release:after:2") is None
    for at in (4, 6):
        assert driver.run("recover", home, f"training.session.session:Session.release:after:{at}") is None
    opened, found = settled(home)
    assert found["finished"]
    assert [each["draw"] for each in made(home) if "draw" in each] == list(range(6))  # the rest here
    assert [each["times"] for each in entries(opened, "resumed")] == [1, 2, 3]


def test_nothing_is_kept_of_tuned_jobs_of_failed_ones_and_where_it_is_off(home, monkeypatch):
    opened = Home.open(place(home))
    files_seen: list[int] = []
    real = training_steps.keep

    def look(*arguments):
        files_seen.append(len(list(home.glob("jobs/*/answers"))))
        return real(*arguments)

    monkeypatch.setattr(training_steps, "keep", look)
    job.train(opened, ASKED, by="test")
    tuned = JobRequest("adult", "lazybb", "0.2", tuning=TuningRequest({"rounds": [2, 4]}, None))
    job.train(opened, tuned, by="test")
    monkeypatch.setenv("DPSERVE_RESUME", "0")
    job.train(opened, ASKED, by="test")
    assert files_seen == [1, 0, 0]
    monkeypatch.setenv("DPSERVE_RESUME", "1")
    monkeypatch.setattr(training_steps, "keep", lambda *_: 1 / 0)
    with pytest.raises(JobFailed):
        job.train(opened, ASKED, by="test")
    assert not list(home.glob("jobs/*/answers"))
    monkeypatch.setenv("DPSERVE_RESUME", "yes")
    size = opened.ledger.dataset("adult").most_used.used
    with pytest.raises(InputError, match="DPSERVE_RESUME='yes': must be 0 or 1"):
        job.train(opened, ASKED, by="test")
    job.recover(opened)
    assert opened.ledger.dataset("adult").most_used.used - opened.ledger.dataset("adult").most_used.reserved == size
