"""Learners of others from nothing to a certificate: admitted after a check, trained on a registered dataset without a
row of it, certified with who wrote and who admitted them; and refused where the admission is not what runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ledgers
import pytest
from pages import part
from small_home import dpserve

from accountant.access import key_life
from accountant.audit.audit import audit_home
from accountant.errors import JobFailed, NameTaken, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger import learner_admissions
from accountant.ledger.families.records import Why
from accountant.ledger.ledger import Ledger
from accountant.ledger.withdrawal import withdraw
from accountant.system.user import this_user
from dpserve_platform.outside import admitted
from dpserve_platform.replay import subjects
from dpserve_verify.errors import InputError, ModelInvalid
from models.store.loading import load_of_home
from training.jobs import job
from training.jobs.draw_journal import DrawJournal
from training.planning.plans import plan
from training.requests import JobRequest

pytestmark = pytest.mark.home("prepared")
EXAMPLE = ledgers.ROOT / "examples" / "naive_bayes.py"
SOURCE = f"{EXAMPLE}:NaiveBayes"
ASKED = JobRequest("adult", "outside", "0.5", parameters={"code": "bayes"})


WHY = Why("steward", "was read")


def admit(home: Home, path=EXAMPLE, name: str = "bayes", only=(), neighbours: int = 2) -> admitted.Admitted:
    source = subjects.source_by(f"{path}:NaiveBayes", None)
    return subjects.admit(home, source, name, WHY, neighbours, only, bool(only))


def remove(home: Home, name: str = "bayes") -> int:
    return learner_admissions.remove(home.ledger, name, WHY).seq


def problems(home: Home) -> list[str]:
    return [*audit_home(Home.open(ledgers.place(home.path))).problems]


def test_the_page_s_commands_lead_from_nothing_to_a_certificate(home):
    page = part("docs/reference/others.md", "From nothing to a certificate")
    lines = re.findall(r"^dpserve ((?:learner (?:admit|remove)|plan|train|verify|predict) .*?)(?: +#.*)?$", page, re.M)
    commands = [line.split()[0] for line in lines]
    assert commands == ["learner", "plan", "train", "verify", "predict", "learner"]
    for line in lines:
        line = line.replace("examples/", f"{ledgers.ROOT}/examples/").replace("$DPSERVE_HOME", str(home.path))
        line += " --neighbours 2" if line.startswith("learner admit") else ""
        done = dpserve(home.path, *shlex.split(line))
        assert done.returncode == 0, (line, done.stderr)
    verified = load_of_home(home, home.models / "adult" / "1", "adult")
    (admission,) = (entry for entry in home.ledger.log.entries() if entry.value["type"] == "learner-admitted")
    assert (admission.value["digest"], admission.value["neighbours"]) == (subjects.source_of(SOURCE).digest, 2)
    public, digest = verified.certificate.form.public, subjects.source_of(SOURCE).digest
    assert public.learner == "outside"
    assert public.hyperparameters == {
        "code": digest,
        "author": "naive_bayes.py",
        "admitted_by": this_user(),
        "admission": admission.seq,
        "prior": "2",
    }
    assert "the learner is a text of others that ran without rows" in verified.certificate.form.preprocessing
    assert home.ledger.reservation(verified.certificate.reservation).value["parameters"]["code"] == digest
    said = dpserve(home.path, "verify", str(home.models / "adult" / "1")).stdout
    words = f"its learner, sha256 {digest}, was written by naive_bayes.py and admitted by {this_user()}, as entry "
    assert f"{words}{admission.seq} of the ledger says" in said
    assert "was written by naive" in (home.models / "adult" / "1" / "card.md").read_text().replace("\\", "")
    later = dpserve(home.path, "train", "adult", "--learner", "outside", "--set", "code=bayes", "--epsilon", "0.1")
    assert (later.returncode, "is not admitted here" in later.stderr) == (2, True)
    assert problems(home) == []


def test_what_is_not_what_was_admitted_is_refused_while_nothing_is_spent(home, tmp_path):
    kept = admit(home)
    folder = home.path / admitted.FOLDER / kept.source.digest
    parameters = plan(home, ASKED).request.parameters
    assert (parameters["admitted_by"], parameters["admission"]) == ("steward", kept.entry.seq)
    for given, problem in (
        (None, "name one that is admitted"),
        ({"code": "other"}, "is not admitted here; admitted are: bayes"),
        ({"code": "a" * 64}, "is not admitted here"),
        ({"code": "bayes", "author": "me"}, "follow from the admission"),
        ({"code": "bayes", "admission": 1}, "follow from the admission"),
        ({"code": "bayes", "posterior": "1"}, "unexpected keyword argument 'posterior'"),
    ):
        with pytest.raises(InputError, match=problem):
            plan(home, JobRequest("adult", "outside", "0.5", parameters=given))
    with pytest.raises(InputError, match="not tuned privately"):
        plan(home, JobRequest.of({
            "dataset": "adult", "learner": "outside", "epsilon": "0.5", "tuning": {"grid": {"prior": ["1", "2"]}},
        }))  # fmt: skip

    changed = tmp_path / "naive_bayes.py"
    changed.write_text(EXAMPLE.read_text() + "\n")
    for path, name, problem in (
        (changed, "bayes", "another learner has it here, by entry"),
        (EXAMPLE, "bayes", "is admitted already, as bayes, by entry"),
        (EXAMPLE, "again", "is admitted already, as bayes, by entry"),
    ):
        with pytest.raises(NameTaken, match=problem):
            admit(home, path, name)
    with pytest.raises(UnknownName, match="no such dataset"):
        admit(home, changed, "other", ("nope",))
    other = admit(home, changed, "other")
    text, report = folder / admitted.TEXT, folder / admitted.REPORT.format(kept.entry.value["report"])
    for path, forged, problem in (
        (text, text.read_bytes() + b"\n", "is not what entry"),
        (text, None, "cannot be read"),
        (report, report.read_bytes().replace(b'"sig":"', b'"sig":"AAAA', 1), "is not what entry"),
        (report, next((folder.parent / other.source.digest).glob("*.json")).read_bytes(), "is not what entry"),
    ):
        before = path.read_bytes()
        path.unlink() if forged is None else path.write_bytes(forged)
        with pytest.raises(ModelInvalid, match=problem):
            plan(home, ASKED)
        path.write_bytes(before)
    key_life.rotate(home, "issuer", "test", "a new year")
    plan(home, ASKED)  # what was signed before stays good
    key_life.mark_compromised(home, home.trust.issuers[0].keyid, 0, "test", "was copied")
    assert home.ledger.dataset("adult").is_untouched
    with pytest.raises(ModelInvalid, match="not signed by a key of this home that stands"):
        plan(home, ASKED)


def test_the_entry_decides_what_is_admitted(home, tmp_path, monkeypatch):
    """A process that ends between the files and the entry has admitted nothing; nor does the signed file alone."""
    source = subjects.source_of(SOURCE)
    monkeypatch.setattr(learner_admissions, "admit", lambda *_: os._exit(9))
    child = os.fork()
    if not child:
        admit(home)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    monkeypatch.undo()
    folder = home.path / admitted.FOLDER / source.digest
    assert len([*folder.iterdir()]) == 2
    (folder / "admission.dsse.json").write_bytes(next(folder.glob("*.json")).read_bytes())
    with pytest.raises(InputError, match="admitted are: none. To admit one: dpserve"):
        plan(home, ASKED)
    first = admit(home)
    assert plan(home, ASKED).request.parameters["admission"] == first.entry.seq
    remove(home)
    again = admit(home)  # whose report is another
    assert plan(home, ASKED).request.parameters["admission"] == again.entry.seq > first.entry.seq
    assert problems(home) == []


def test_a_learner_runs_for_the_datasets_that_it_is_admitted_for(home):
    adult = home.ledger.dataset("adult").registration
    home.ledger.register(replace(adult, name="visits", commitment="0" * 64, budget=None, families=("adult",)))
    entered = admit(home, only=("adult",))
    assert entered.report["schemas"] == [adult.schema]  # which may have a target of another kind than the small one
    assert entered.report["neighbours"] == 2
    plan(home, ASKED)
    with pytest.raises(InputError, match="is admitted for jobs on adult alone, and not on visits"):
        plan(home, replace(ASKED, dataset="visits"))
    with pytest.raises(WrongState, match="learner bayes is admitted for its jobs; dpserve learner remove bayes"):
        withdraw(home.ledger, "adult", WHY)
    remove(home)
    kept = admit(home)
    planned = plan(home, ASKED)
    size, named = home.ledger.log.size(), planned.request.parameters
    for changes, problem in (
        ({"code": "a" * 64}, "is not admitted here"),
        ({"admission": kept.entry.seq - 1}, "is not admitted here"),
        ({"admission": None}, "is not admitted here"),
        ({"author": "somebody"}, "are not those of entry"),
    ):
        request = replace(planned.request, parameters={**named, **changes})
        with pytest.raises(InputError, match=problem):
            home.ledger.reserve(request, planned.recipe.unit, planned.recipe.plan, by="test")
    for missing in ({}, {"code": kept.source.digest}):
        request = replace(planned.request, learner="outside" if not missing else "other", parameters=missing)
        with pytest.raises(InputError, match="is not admitted here"):
            home.ledger.reserve(request, planned.recipe.unit, planned.recipe.plan, by="test")
    assert home.ledger.log.size() == size


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
        admit(home, path, "loose", neighbours=14)
    assert learner_admissions.admissions(home.ledger) == []


def test_what_is_admitted_is_listed_and_shown(home):
    """With text, report and how many jobs named it."""
    kept = admit(home)
    job.submit(home, ASKED, by="test")
    listed = json.loads(dpserve(home.path, "learner", "list", "--json").stdout)["admitted"]
    assert [(each["name"], each["entry"], each["jobs"], each["datasets"]) for each in listed] == [
        ("bayes", kept.entry.seq, 1, None)
    ]
    text = dpserve(home.path, "learner", "list").stdout
    assert f"bayes      {kept.source.digest[:12]}" in text
    shown = json.loads(dpserve(home.path, "learner", "show", "bayes", "--json").stdout)
    assert (shown["text"], shown["report"]["neighbours"], shown["by"]) == (EXAMPLE.read_text(), 2, "steward")
    assert Path(shown["path"]).read_text() == shown["text"]
    assert f"entry {kept.entry.seq}: was read" in dpserve(home.path, "learner", "show", "bayes").stdout
    unknown = dpserve(home.path, "learner", "show", "nobody")
    assert (unknown.returncode, "is not admitted here; admitted are: bayes" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("anew", [False, True])
def test_a_job_that_waits_is_given_back_once_its_learner_is_removed(home, anew):
    admit(home)
    waiting = job.submit(home, ASKED, by="test")
    remove(home)
    if anew:
        admit(home)
    with pytest.raises(InputError, match="was removed or admitted anew since the job was asked for"):
        job.run(home, waiting.seq)
    assert home.ledger.job(waiting.seq).state == "released"
    assert home.ledger.dataset("adult").is_untouched
    assert problems(home) == []


def test_a_job_that_has_started_goes_on_after_its_learner_is_removed(home, monkeypatch):
    admit(home)
    started = Ledger.start

    def start(ledger, *about):
        right = started(ledger, *about)
        remove(home)
        return right

    monkeypatch.setattr(Ledger, "start", start)
    job.train(home, ASKED, by="test")
    assert learner_admissions.admissions(home.ledger) == []
    assert load_of_home(home, home.models / "adult" / "1", "adult").certificate.form.public.learner == "outside"
    assert problems(home) == []


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
