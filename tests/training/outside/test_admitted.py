"""Learners of others from nothing to a certificate: admitted after a check, trained on a registered dataset without a
row of it, certified with who wrote and who admitted them; and refused where the admission is not what runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import ledgers
import pytest
from small_home import dpserve

from accountant.access import key_life
from accountant.audit.audit import audit_home
from accountant.errors import JobFailed
from accountant.home import Home
from accountant.ledger.families.records import Why
from accountant.system.user import this_user
from dpserve_verify.errors import InputError, ModelInvalid
from models.store.loading import load_of_home
from training.jobs import job
from training.jobs.draw_journal import DrawJournal
from training.outside import admitted
from training.planning.plans import plan
from training.replay import subjects
from training.requests import JobRequest

pytestmark = pytest.mark.home("prepared")
EXAMPLE = ledgers.ROOT / "examples" / "naive_bayes.py"
ASKED = JobRequest("adult", "outside", "0.5", parameters={"code": "bayes"})


def admit(home: Home, path=EXAMPLE, name: str = "bayes") -> admitted.Admitted:
    return subjects.admit(home, f"{path}:NaiveBayes", name, Why("steward", "was read"), None, 2)


def problems(home: Home) -> list[str]:
    return [*audit_home(Home.open(ledgers.place(home.path))).problems]


def test_the_page_s_commands_lead_from_nothing_to_a_certificate(home):
    page = (ledgers.ROOT / "docs" / "platform.md").read_text()
    lines = re.findall(r"^dpserve ((?:learner (?:admit|remove)|plan|train|verify|predict) .*?)(?: +#.*)?$", page, re.M)
    commands = [line.split()[0] for line in lines]
    assert commands == ["learner", "plan", "train", "verify", "predict", "learner"]
    for line in lines:
        line = line.replace("examples/", f"{ledgers.ROOT}/examples/").replace("$DPSERVE_HOME", str(home.path))
        line += " --neighbours 2" if line.startswith("learner admit") else ""
        done = dpserve(home.path, *shlex.split(line))
        assert done.returncode == 0, (line, done.stderr)
    verified = load_of_home(home, home.models / "adult" / "1", "adult")
    public, digest = verified.certificate.form.public, subjects.source_of(f"{EXAMPLE}:NaiveBayes").digest
    assert public.learner == "outside"
    assert public.hyperparameters == {
        "code": digest,
        "author": "naive_bayes.py",
        "admitted_by": this_user(),
        "prior": "2",
    }
    assert "the learner is a text of others that ran without rows" in verified.certificate.form.preprocessing
    assert home.ledger.reservation(verified.certificate.reservation).value["parameters"]["code"] == digest
    later = dpserve(home.path, "train", "adult", "--learner", "outside", "--set", "code=bayes", "--epsilon", "0.1")
    assert (later.returncode, "is not admitted here" in later.stderr) == (2, True)
    assert problems(home) == []


def test_what_is_not_what_was_admitted_is_refused_while_nothing_is_spent(home, tmp_path):
    size, kept = home.ledger.log.size(), admit(home)
    folder = home.path / admitted.FOLDER / kept.source.digest
    assert plan(home, ASKED).request.parameters["admitted_by"] == "steward"
    for parameters, problem in (
        (None, "is not admitted here"),
        ({"code": "other"}, r"is not admitted here; name one with --set code=NAME \(bayes\)"),
        ({"code": "a" * 64}, "is not admitted here"),
        ({"code": "bayes", "author": "me"}, "follow from the admission"),
        ({"code": "bayes", "posterior": "1"}, "unexpected keyword argument 'posterior'"),
    ):
        with pytest.raises(InputError, match=problem):
            plan(home, JobRequest("adult", "outside", "0.5", parameters=parameters))
    with pytest.raises(InputError, match="not tuned privately"):
        plan(home, JobRequest.of({
            "dataset": "adult", "learner": "outside", "epsilon": "0.5", "tuning": {"grid": {"prior": ["1", "2"]}},
        }))  # fmt: skip

    changed = tmp_path / "naive_bayes.py"
    changed.write_text(EXAMPLE.read_text() + "\n")
    with pytest.raises(InputError, match="another learner has it here"):
        admit(home, changed)
    other = admit(home, changed, "other")
    text, envelope = (folder / admitted.TEXT).read_bytes(), (folder / admitted.ADMISSION).read_bytes()
    (folder / admitted.TEXT).write_bytes(text + b"\n")
    with pytest.raises(ModelInvalid, match="is not what was admitted"):
        plan(home, ASKED)
    (folder / admitted.ADMISSION).write_bytes(
        (home.path / admitted.FOLDER / other.source.digest / admitted.ADMISSION).read_bytes()
    )
    with pytest.raises(ModelInvalid, match="is not what was admitted"):
        plan(home, ASKED)
    (folder / admitted.TEXT).write_bytes(text)
    (folder / admitted.ADMISSION).write_bytes(envelope.replace(b'"sig":"', b'"sig":"AAAA', 1))
    with pytest.raises(ModelInvalid, match="is not signed by this home's key"):
        plan(home, ASKED)
    (folder / admitted.ADMISSION).write_bytes(envelope)
    plan(home, ASKED)
    assert home.ledger.log.size() == size
    key_life.rotate(home, "issuer", "test", "a new year")
    with pytest.raises(ModelInvalid, match="as it is now"):
        plan(home, ASKED)


LOOSE = EXAMPLE.read_text().replace(
    "        terms, totals", "        self.prior += __import__('os').urandom(4)[0]\n        terms, totals"
)
MORE = EXAMPLE.read_text().replace(
    "            rows = np", "            if counts.any(): session.histogram([at])\n            rows = np"
)


@pytest.mark.parametrize(("text", "seen"), [(LOOSE, "outcome"), (MORE, "plan")], ids=["outcome", "plan"])
def test_what_its_check_refuses_is_not_admitted(home, tmp_path, text, seen):
    assert text != EXAMPLE.read_text()
    path = tmp_path / "loose.py"
    path.write_text(text)
    with pytest.raises(InputError, match=f"its check refuses it .{seen}:"):
        subjects.admit(home, f"{path}:NaiveBayes", "loose", Why("steward", "was not read"), None, 14)
    assert admitted.admitted(home) == []


def test_a_job_that_waits_is_given_back_once_its_learner_is_removed(home):
    admit(home)
    waiting = job.submit(home, ASKED, by="test")
    admitted.remove(home, "bayes")
    with pytest.raises(InputError, match="is not admitted here"):
        job.run(home, waiting.seq)
    assert home.ledger.job(waiting.seq).state == "released"
    assert home.ledger.dataset("adult").is_untouched


def test_a_process_with_bounds_of_its_own_prices_it(home):
    admit(home)
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (60, 60)); from serving.cli.app import run;"
        "raise SystemExit(run('plan adult --learner outside --set code=bayes --epsilon 0.5'.split()))"
    )
    place = {**os.environ, "DPSERVE_HOME": str(home.path)}
    priced = subprocess.run([sys.executable, "-c", code], env=place, cwd=ledgers.ROOT, capture_output=True, text=True)
    assert (priced.returncode, "outside on adult" in priced.stdout) == (0, True), priced.stderr


FAILS = "        if session.epsilon == '0.5' and terms and int(counts.sum()) != 0: raise ValueError(str(counts))\n"


def test_a_learner_that_fails_on_real_answers_is_burned_and_tells_nothing(home, tmp_path):
    path = tmp_path / "fails.py"
    text = EXAMPLE.read_text().replace(
        "        constant = ", FAILS.replace("session.epsilon", "session.public.epsilon") + "        constant = "
    )
    path.write_text(text)
    admit(home, path, "fails")  # whose check is at epsilon 1
    with pytest.raises(JobFailed, match=r"failed after it had started \(OutsideFailed\); its budget is spent"):
        job.train(home, JobRequest("adult", "outside", "0.5", parameters={"code": "fails"}), by="test")
    assert not home.ledger.dataset("adult").is_untouched
    assert problems(home) == []


def test_a_job_whose_process_died_goes_on_without_a_second_draw(home, monkeypatch):
    monkeypatch.setenv("DPSERVE_RESUME", "1")
    admit(home)
    original, count = DrawJournal.next, []

    def counted(self, draw):
        if len(count) == 5:
            os._exit(9)
        count.append(1)
        return original(self, draw)

    monkeypatch.setattr(DrawJournal, "next", counted)
    place = ledgers.place(home.path)
    home.ledger.log.database.close()
    child = os.fork()
    if not child:
        job.train(Home.open(place), ASKED, by="test")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    again = Home.open(place)
    monkeypatch.setattr(DrawJournal, "next", lambda self, draw: original(self, lambda: (count.append(1), draw())[1]))
    settled = job.recover(again)
    (only,) = again.ledger.jobs()
    assert settled["finished"] == [only.seq]
    features = len(load_of_home(again, again.models / "adult" / "1", "adult").ensemble.features)
    assert len(count) == features - 5
    assert problems(again) == []
