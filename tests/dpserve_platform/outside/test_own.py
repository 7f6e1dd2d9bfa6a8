"""Queries of a learner's own: what answers them has the rows and says nothing but whole numbers, each time anew; a lie
about how far a row moves them is refused; a model made of them says by whose word, from admission to certificate.
"""

from __future__ import annotations

import json
import shlex
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec

import ledgers
import pytest
from pages import part
from small_home import dpserve

from accountant.errors import JobFailed
from accountant.home import Home
from accountant.ledger import learner_admissions
from accountant.ledger.families.records import Why
from dpserve_platform.outside import admitted, own
from dpserve_platform.outside.own import Answering, OwnQuery, read_own
from dpserve_platform.outside.process import OutsideFailed
from dpserve_platform.outside.sandbox import OutsideLearner
from dpserve_platform.replay import subjects
from dpserve_platform.replay.neighbours import packed, pairs
from dpserve_platform.replay.report import Report, check
from dpserve_verify.certificates import sentences
from dpserve_verify.entries.kinds import read_form
from dpserve_verify.entries.learners import Learners
from dpserve_verify.errors import CertificateInvalid, InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.declared import purpose_of_own
from models.store.loading import load_of_home
from serving.cli.app import run
from training.jobs import job
from training.planning.plans import plan
from training.requests import JobRequest
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Rehearsal, Source

SCHEMA = parse_schema(subjects.SCHEMA).question(None)
HONEST = "return np.bincount(rows.codes[0], minlength=9)[:9]"
TEXT = """
import os, time, numpy as np
kept = []
class Own:
    def __init__(self, feature=0):
        self.feature = feature
    def answer(self, rows):
        BODY
class L:
    def __init__(self, size=9, sensitivity=1, noise='laplace', feature=0):
        self.asked = {'size': int(size), 'sensitivity': int(sensitivity), 'noise': noise}, {'feature': int(feature)}
    def learn(self, session):
        asked, arguments = self.asked
        heard = [session.ask('Own', arguments, share='0.5', **asked) for _ in range(2)]
        return {'terms': [[0] * f.bins for f in session.public.features], 'constant': int(heard[0][0]), 'link': 1.0}
"""


def source(body: str = HONEST) -> Source:
    return Source(TEXT.replace("BODY", body.replace("\n", "\n        ")), "L", "Ada")


def judged(body: str, relation=Relation.ADD_REMOVE, contributions: int = 1, neighbours: int = 3, **asked) -> Report:
    public = Public.of(SCHEMA, relation, Budget.of("1", "0.000001"), False, contributions)
    return check(lambda: OutsideLearner(source(body), asked), SCHEMA, public, neighbours, 60)


def answer(body: str, size: int = 9, seconds: int = 2, times: int = 1):
    base, _ = next(pairs(SCHEMA, None, 60, Relation.ADD_REMOVE, 1, 1))
    with Answering(source(body), waits=False) as answering:
        query = OwnQuery("Own", '{"feature": 0}', size, 1, "l1", seconds, answering)
        rows = packed(SCHEMA, base, Relation.ADD_REMOVE)
        return [query(rows).tolist() for _ in range(times)], rows


def test_one_that_keeps_its_word_reaches_it_and_no_more():
    for relation, contributions, noise in (
        (Relation.ADD_REMOVE, 1, "laplace"), (Relation.REPLACE_ONE, 1, "laplace"), (Relation.ADD_REMOVE, 3, "gaussian"),
    ):  # fmt: skip
        report = judged(HONEST, relation, contributions, noise=noise)
        assert report.ok, report.to_json()
        assert report.releases == 2
        assert 0.9 < max(report.reached.values()) <= 1 or noise == "gaussian"


# What its class does: a fault of this kind is seen.
LIES = {
    "counts a row twice": ("return 2 * np.bincount(rows.codes[0], minlength=9)[:9]", "sensitivity"),
    "counts a row of one shape a thousand times": (
        "c = np.bincount(rows.codes[0], minlength=9)[:9]\nc[8] *= 1000\nreturn c", "sensitivity"),
    "goes by the order of rows": ("return [int(rows.codes[0] @ np.arange(rows.target.size))] * 9", "sensitivity"),
    "goes by the first row": ("return [1000 * int(rows.codes[0][0] + 10 * rows.codes[1][0])] * 9", "sensitivity"),
    "goes by the time": ("return [time.perf_counter_ns() % 1000000] * 9", "sensitivity"),
    "draws at random": ("return [int.from_bytes(os.urandom(4), 'big')] * 9", "sensitivity"),
    "fails where rows are many": ("return [1 // (61 - rows.target.size)] * 9 if rows.target.size else 0", "error"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_lie_about_how_far_a_row_moves_it_is_refused(name):
    body, kind = LIES[name]
    report = judged(body)
    assert [fault.kind for fault in report.faults] == [kind], report.to_json()


@pytest.mark.parametrize(
    ("relation", "contributions"), [(Relation.REPLACE_ONE, 1), (Relation.ADD_REMOVE, 3)], ids=["replaced", "persons"]
)
def test_half_of_the_truth_is_refused_of_replaced_rows_and_of_persons_too(relation, contributions):
    body = "return 2 * np.bincount(rows.codes[0], minlength=9)[:9]"
    report = judged(body, relation, contributions)
    assert [fault.kind for fault in report.faults] == ["sensitivity"], report.to_json()


# What is no answer: none of it is heard, and which it was is not said.
DEEDS = {
    "fails with rows in its words": "raise ValueError(rows.codes.tolist())",
    "answers more": "return [0] * 10",
    "answers less": "return [0] * 8",
    "answers NaN": "return [float('nan')] * 9",
    "answers fractions": "return [0.0] * 9",
    "answers truth values": "return [True] * 9",
    "answers texts": "return ['1'] * 9",
    "answers what is huge": "return [1 << 41] * 9",
    "answers what 64 bits do not hold": "return [(1 << 64) - 1] * 9",
    "answers nothing": "return None",
    "sends more by itself": "os.write(3, bytes(100))\nreturn [0] * 9",
    "sends what is huge by itself": "os.write(3, b'\\x7f' * 72); os._exit(0)",
    "ends": "os._exit(0)",
    "never ends": "while True: pass",
    "answers and stays": "os.write(3, bytes(72))\nwhile True: pass",
    "opens a file": "return [len(open('/etc/hostname').read())] * 9",
    "takes much memory": "bytearray(9 << 30)\nreturn [0] * 9",
}


@pytest.mark.parametrize("name", DEEDS)
def test_what_is_no_answer_ends_it_with_one_sentence(name):
    with pytest.raises(OutsideFailed) as seen:
        answer(DEEDS[name], seconds=1)
    assert seen.value.message == (
        "learner: its own query Own failed, answered otherwise than by 9 whole numbers of at most 2^40 in size, or "
        "took longer than 1 s; no more is said, for it may tell of rows"
    )
    assert seen.value.__cause__ is None
    assert seen.value.__suppress_context__


def test_each_answer_is_of_the_rows_alone_whatever_was_asked_before():
    body = (
        "kept.append(rows.codes.sum()); np.kept = [*getattr(np, 'kept', []), 1]\nreturn [len(kept) + len(np.kept)] * 9"
    )
    assert answer(body, times=3)[0] == [[2] * 9] * 3
    (codes,), rows = answer(
        "return [*map(int, rows.codes.sum(axis=1)), *rows.codes.shape, int(rows.target.sum()), 0, 0]"
    )
    assert codes == [*rows.bins.sum(axis=1), *rows.bins.shape, rows.labels.sum(), 0, 0]


def test_one_who_forks_sends_a_signal_or_writes_into_the_rows_may_not():
    for body in ("os.fork()", "os.kill(os.getppid(), 9)", "os.write(4, b'x')", "rows.codes[0] = 0"):
        tried = f"try: {body}\nexcept (OSError, ValueError): return [1] * 9\nreturn [0] * 9"
        assert answer(tried, times=2)[0] == [[1] * 9] * 2, body


def test_in_a_job_an_answer_comes_when_its_time_is_over(monkeypatch):
    slept, rows = [], packed(SCHEMA, next(pairs(SCHEMA, None, 60, Relation.ADD_REMOVE, 1, 1))[0], Relation.ADD_REMOVE)
    clock = [100.0]
    monkeypatch.setattr(own.time, "sleep", slept.append)
    monkeypatch.setattr(own.time, "monotonic", lambda: clock[0])
    with Answering(source(), waits=True) as answering:
        query = OwnQuery("Own", "{}", 9, 1, "l1", 7, answering)
        query(rows)
        query(rows)
        assert slept == [7 + own.START_SECONDS, 7]


def test_it_is_refused_where_rows_are_not_in_one_process_or_it_was_not_admitted_so(monkeypatch):
    said = {"kind": "Own", "arguments": {}, "size": 9, "sensitivity": 1, "seconds": 1}
    public = Public.of(SCHEMA, Relation.ADD_REMOVE, Budget.of("1", "0"), True)
    there = source()

    def read(changed=None, on=public, of=there, **more):
        return read_own({**said, **more, **(changed or {})}, on, "l1", of, Answering(of, waits=False))

    assert read().purpose == "answer Own, by a sensitivity that is declared, as a learner of others asks"
    for bad in (
        {"kind": "a b"}, {"kind": ["Own"]}, {"kind": "x" * 41}, {"arguments": [1]}, {"arguments": {"x": "y" * 70000}},
        {"size": 0}, {"size": 1 << 17}, {"size": True}, {"sensitivity": 0}, {"sensitivity": 1.0}, {"seconds": 61},
    ):  # fmt: skip
        with pytest.raises(OutsideFailed):
            read(bad)
    with pytest.raises(InputError, match="learner admit ... --declared"):
        read(of=Source(there.text, "L", "Ada", own=()))
    with pytest.raises(InputError, match="too many for one"):
        read(on=Public(**{**vars(public), "records": 1 << 30}))
    with pytest.raises(InputError, match="needs the rows in one process"):
        read(on=Public(**{**vars(public), "draws": 2}))
    monkeypatch.setenv("DPSERVE_ENGINE", "dask://10.0.0.1:8786")
    with pytest.raises(InputError, match="needs the rows in one process"):
        read()


def test_a_rehearsal_starts_nothing_that_has_rows(monkeypatch):
    monkeypatch.setattr(own, "SealedProcess", None)
    OutsideLearner(source()).learn(
        Rehearsal(Public.of(SCHEMA, Relation.ADD_REMOVE, Budget.of("1", "0"), True), Decimal(1))
    )


ASKED = JobRequest("adult", "outside", "0.5", parameters={"code": "spread"})


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "spread.py"
    path.write_text(source().text)
    return path


def admit(home: Home, path) -> admitted.Admitted:
    given = subjects.source_by(f"{path}:L", "Ada"), "spread", Why("steward", "by her word"), 3
    return subjects.admit(home, *given, declared=True)


@pytest.mark.slow
@pytest.mark.home("prepared")
def test_by_whose_word_it_is_stands_from_the_admission_to_the_certificate(home, tmp_path, monkeypatch):
    page = part("docs/privacy/others.md", "Queries of a learner's own")
    (tmp_path / "mine.py").write_text(page.split("```python\n")[1].split("```")[0])
    line = page.split("```bash\ndpserve ")[1].split("\n```")[0].replace("mine.py", f"{tmp_path}/mine.py")
    arguments = shlex.split(line.replace("1000", "3"))
    refused = dpserve(home.path, *arguments[:-1])
    assert (arguments[-1], refused.returncode) == ("--declared", 2)
    assert "(Spread), whose sensitivity Ada declares: they were tested on 3 neighbours and not proved" in refused.stderr
    assert learner_admissions.admissions(home.ledger) == []
    assert dpserve(home.path, *arguments).returncode == 0
    monkeypatch.setattr(own, "START_SECONDS", 0.0)
    job.train(home, replace(ASKED, parameters={"code": "mine"}), by="test")
    model = home.models / "adult" / "1"
    verified = load_of_home(home, model, "adult")
    form, words = verified.certificate.form, "tested on 3 made-up neighbours and not proved"
    assert form.public.hyperparameters["tested"] == 3
    assert [line for line in form.not_covered if words in line and "(Spread)" in line and "the word of Ada" in line]
    shown = dpserve(home.path, "verify", str(model))
    assert (shown.returncode, words in " ".join(shown.stdout.split())) == (0, True), shown.stdout + shown.stderr
    (tmp_path / "policy.json").write_text('{"proved": true}')
    strict = dpserve(home.path, "verify", str(model), "--policy", str(tmp_path / "policy.json"))
    assert strict.returncode == 4
    assert "local policy wants everything proved" in " ".join((strict.stdout + strict.stderr).split())
    entry = home.ledger.reservation(verified.certificate.reservation).value
    assert entry["parameters"]["tested"] == 3
    assert "answer Spread, by a sensitivity that is declared" in json.dumps(entry["plan"])
    predicate = json.loads(json.dumps(verified.certificate.statement["predicate"], default=dict))
    sentences.check(predicate)
    parameters = predicate["public"]["hyperparameters"]
    for change in ({"tested": 3000}, {"author": "dpserve"}, {"tested": None}, {"tested": 0}):
        predicate["public"]["hyperparameters"] = parameters | change
        with pytest.raises(CertificateInvalid, match="notCovered|words"):
            sentences.check(predicate)


@pytest.mark.home("prepared")
def test_a_job_may_ask_no_other_query_than_was_tested(home, place):
    bayes = subjects.source_by(f"{ledgers.ROOT}/examples/naive_bayes.py:NaiveBayes", None)
    with pytest.raises(InputError, match="asked no query of its own in its check; leave out --declared"):
        subjects.admit(home, bayes, "bayes", Why("s", "r"), 1, declared=True)
    place.write_text(source().text.replace("ask('Own'", "ask('Own' if asked['size'] == 9 else 'Other'"))
    admit(home, place)
    with pytest.raises(InputError, match="Other is a query of its own"):
        plan(home, JobRequest("adult", "outside", "0.5", parameters={"code": "spread", "size": "8"}))
    with pytest.raises(InputError, match="follow from the admission"):
        plan(home, JobRequest("adult", "outside", "0.5", parameters={"code": "spread", "tested": "100000"}))
    planned = plan(home, ASKED)
    assert planned.request.parameters["tested"] == 3


@pytest.mark.home("prepared")
def test_a_query_that_fails_on_real_rows_is_burned_and_tells_nothing(home, place, caplog):
    place.write_text(source("if len(rows.codes) > 4: raise ValueError(rows.codes.tolist())\n" + HONEST).text)
    admit(home, place)
    with pytest.raises(JobFailed, match=r"failed after it had started \(OutsideFailed\); its budget is spent") as seen:
        job.train(home, ASKED, by="test")
    assert not home.ledger.dataset("adult").is_untouched
    assert "ValueError" not in caplog.text + str(seen.value)


def test_an_auditor_refuses_a_job_that_asks_what_its_admission_does_not_declare():
    begun = {
        "type": "learner-admitted", "time": "2026-01-31T00:00:00Z", "name": "mine", "digest": "a" * 64, "class": "L",
        "author": "Ada", "report": "b" * 64, "neighbours": 3, "reason": "r", "by": "s",
    }  # fmt: skip
    plan_of = [{"purpose": purpose_of_own("Own"), "mechanism": "x", "event": {}, "count": 1}]
    parameters = {"code": "a" * 64, "author": "Ada", "admitted_by": "s", "admission": 5}
    reserved = {"learner": "outside", "dataset": "adult", "plan": plan_of, "parameters": parameters}
    tested = {**reserved, "parameters": {**parameters, "tested": 3}}
    for declared, asked, sound in (
        ({"declared": ["Own"]}, tested, True), ({}, reserved, False), ({"declared": ["Other"]}, tested, False),
        ({"declared": ["Own"]}, reserved, False), ({}, {**tested, "plan": []}, False),
        ({"declared": ["Own"]}, {**tested, "parameters": {**parameters, "tested": 30}}, False),
    ):  # fmt: skip
        judge = Learners()
        judge.judge_admitted(5, read_form("learner-admitted", begun | declared), ["adult"])
        with nullcontext() if sound else pytest.raises(LedgerInvalid):
            judge.judge_reserved(6, asked)
    with pytest.raises(LedgerInvalid, match="no admission declares it"):
        Learners().judge_reserved(6, {"learner": "ebm", "dataset": "adult", "plan": plan_of, "parameters": {}})
    for bad in ([], ["b", "a"], ["a b"], "Own"):
        with pytest.raises((InputError, LedgerInvalid), match="declared"):
            Learners().judge_admitted(5, read_form("learner-admitted", {**begun, "declared": bad}), [])


def test_a_query_may_be_a_transformation_of_opendp_where_that_is_installed():
    example = ledgers.ROOT / "examples/opendp_counts.py"
    needs = ("opendp.prelude", "opendp._data")
    of = replace(subjects.source_by(f"{example}:OpenDPBayes", None), modules=needs)
    public = Public.of(SCHEMA, Relation.ADD_REMOVE, Budget.of("1", "0"), True)
    assert len(example.read_text().splitlines()) < 100
    if find_spec("opendp") is None:
        with pytest.raises(InputError, match="No module named 'opendp'"):
            OutsideLearner(of).learn(Rehearsal(public, Decimal(1)))
        return
    report = check(lambda: OutsideLearner(of), SCHEMA, public, 2, 60)
    assert report.ok, report.to_json()
    assert set(report.reached.values()) == {1.0}


def test_a_query_has_the_modules_that_its_admission_names():
    body = "import csv\n" + HONEST
    with pytest.raises(OutsideFailed):
        answer(body)
    base, _ = next(pairs(SCHEMA, None, 60, Relation.ADD_REMOVE, 1, 1))
    with Answering(replace(source(body), modules=("csv",)), waits=False) as answering:
        heard = OwnQuery("Own", "{}", 9, 1, "l1", 2, answering)(packed(SCHEMA, base, Relation.ADD_REMOVE))
        assert heard.sum() > 0


def test_the_command_checks_with_the_modules_that_are_named(tmp_path):
    (tmp_path / "mine.py").write_text("import csv\n" + source().text)
    for more, code in (([], 2), (["--module", "csv"], 0)):
        assert run(["learner", "check", f"{tmp_path}/mine.py:L", "--neighbours", "1", *more]) == code
