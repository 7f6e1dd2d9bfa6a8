"""Learners of others: what a sealed process can do, what is refused of what it sends, and that what it may ask moves by
no more than is said."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from platform import machine

import pytest

from accountant.errors import PlanMismatch
from accountant.system import seal
from dpserve_platform.outside import process, sandbox
from dpserve_platform.outside.process import OutsideFailed, SealedProcess
from dpserve_platform.outside.sandbox import OutsideLearner, Source
from dpserve_platform.outside.sources import source_of
from dpserve_platform.replay import subjects
from dpserve_platform.replay.neighbours import packed, pairs
from dpserve_platform.replay.report import check
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from serving.cli.app import run
from training.calibration.calibrate import calibrate
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Rehearsal, Session

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "naive_bayes.py"
SCHEMA = parse_schema(subjects.SCHEMA).question(None)
GOOD = "return {'terms': [[0] * f.bins for f in session.public.features], 'constant': 0, 'link': 1.0}"


def public_of(relation=Relation.ADD_REMOVE, delta="0.000001") -> Public:
    return Public.of(SCHEMA, relation, Budget.of("1", delta), delta == "0")


def learner(body: str, before: str = "") -> OutsideLearner:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return OutsideLearner(
        Source(
            f"import os, sys, numpy as np\n{before}\nclass L:\n    def learn(self, session):\n{lines}\n", "L", "test"
        )
    )


def learn(body: str, before: str = ""):
    return learner(body, before).learn(Rehearsal(public_of(), Decimal(1)))


# What it does: a word of the refusal.
DEEDS = {
    "opens a file": ("open('/etc/hostname').read()", "PermissionError"),
    "lists a folder": ("os.listdir('/')", "PermissionError"),
    "writes a file": ("open('/tmp/kept', 'w')", "PermissionError"),
    "opens a socket": ("import socket; socket.socket()", "PermissionError"),
    "forks": ("os.fork()", "PermissionError"),
    "starts a thread": ("import _thread; _thread.start_new_thread(print, ())", "can't start new thread"),
    "runs a program": ("os.execv('/bin/true', ['true'])", "PermissionError"),
    "sends a signal": ("os.kill(os.getpid(), 0)", "PermissionError"),  # 0: nobody would be ended
    "looks at its parent's memory": ("open(f'/proc/{os.getppid()}/mem')", "PermissionError"),
    "calls the system itself": (
        "import ctypes; lib = ctypes.CDLL(None, use_errno=True)\n"
        "raise ValueError(f'{lib.open(b\"/etc/hostname\", 0)} {ctypes.get_errno()}')",
        "ValueError: -1 1",
    ),
    "imports what is not loaded": ("import sqlite3", "No module named"),
    "imports dpserve": ("import accountant.home", "PermissionError|No module named"),
    "takes much memory": ("bytearray(3 << 30)", "MemoryError"),
    "ends": ("os._exit(3)", "its process ended"),
    "has no class": ("pass", "KeyError|AttributeError"),
    "sends no JSON": ("os.write(4, b'hello\\n')", "no JSON object"),
    "sends a list": ("os.write(4, b'[1]\\n')", "no JSON object"),
    "sends what is deep": ("os.write(4, b'[' * 100000 + b'\\n')", "no JSON object"),
    "sends what is long": ("while True: os.write(4, b'x' * 65536)", "bytes at once"),
    "sends NaN": ("session._ask({'ask': 'sums', 'tables': [{'feature': 0, 'values': [[float('nan')] * 9]}], "
                  "'share': '1', 'noise': 'laplace'})", "values must be|whole number"),
    "chooses where noise is named": ("session._ask({'ask': 'histogram', 'features': [0], 'of': 'rows', 'share': '1', "
                                     "'noise': None})", "noise must be"),
    "asks for the total of classes": ("session.histogram([0], total=True)", "the total of a number"),
    "asks of many cells": ("session.leaves([[*['above', 0, 0], 65535, 1], 9])", "65546 cells"),
    "asks of no tree": ("session.leaves([])", "list of 1"),
    "asks of half a tree": ("session.leaves([['above', 0, 0, 1]])", "a split is"),
    "asks of no such test": ("session.leaves([['is', 0, 0, 1, 0]])", "has no such test"),
    "asks of a test that is a list": ("session.leaves([[['above'], 0, 0, 1, 0]])", "its tree"),
    "asks of no such feature": ("session.leaves([['above', 4, 0, 1, 0]])", "one of 4 features"),
    "asks of a leaf below 0": ("session.leaves([['above', 0, 0, 1, -1]])", "whole number from 0"),
    "asks of a leaf that is none": ("session._ask({'ask': 'leaves', 'trees': [['above', 0, 0, 1, None]], 'of': 'rows', "
                                    "'share': '1', 'noise': 'laplace'})", "weight=None"),
    "asks of deep trees": ("t = 0\nfor _ in range(33): t = ['above', 0, 0, 1, t]\nsession.leaves([t])", "32 deep"),
    "asks of a tree in itself": ("t = ['above', 0, 0, 1, 0]\nt[4] = t\nsession.leaves([t])", "Circular reference"),
    "compares with few numbers": ("session.furthest([([0], [1, 2])])", "a number for each cell"),
    "compares nothing": ("session.furthest([])", "list of 1"),
    "compares with what no row counts": ("session.furthest([([3], [1e18] * 3)])", "whole number"),
    "asks for something else": ("session._ask({'ask': 'rows'})", "a request is one of"),
    "asks with more": ("session._ask({'ask': 'select', 'tables': [], 'share': '1', 'sensitivity': 1})", "a request is"),
    "asks of no feature": ("session.histogram([9])", "whole number from 0 to 3"),
    "asks of a truth value": ("session._ask({'ask': 'histogram', 'features': [True], 'of': 'rows', "
                              "'share': '1', 'noise': 'laplace'})", "whole number"),
    "asks of three": ("session.histogram([0, 1, 2])", "one place or two"),
    "asks twice of one": ("session.histogram([0, 0])", "one place or two"),
    "takes more than all": ("session.histogram([0], share='2')", "share="),
    "takes no share": ("session.histogram([0], share='0')", "share="),
    "shares by infinity": ("session.histogram([0], share='Infinity')", "share="),
    "has noise of its own": ("session.histogram([0], noise='none')", "noise must be"),
    "sums what is large": ("session.sums([(0, [[1 << 30] * session.public.features[0].bins])])", "whole number"),
    "sums by few bins": ("session.sums([(0, [[1, 2]])])", "in each"),
    "sums nothing": ("session.sums([])", "list of 1"),
}  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS)
def test_what_a_learner_may_not_do_is_refused(deed):
    body, words = DEEDS[deed]
    built = learner(body) if deed != "has no class" else OutsideLearner(Source("x = 1", "L", "test"))
    with pytest.raises(OutsideFailed, match=words):
        built.learn(Rehearsal(public_of(), Decimal(1)))


def test_one_that_never_ends_is_ended(monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 3.0)
    with pytest.raises(OutsideFailed, match="did not end in time"):
        learn("while True: pass")


def test_it_asks_no_more_often_than_it_may(monkeypatch):
    monkeypatch.setattr(sandbox, "MOST_RELEASES", 3)
    with pytest.raises(OutsideFailed, match="more than 3 releases"):
        learn("while True: session.histogram([0])")


def seal_by(fault, monkeypatch, tmp_path):
    """Have a child whose seal has this fault, a text and what stands in its place."""
    true, line = Path(seal.__file__).read_text(), "from accountant.system.seal import check_alone, seal\n"
    faulty = true.replace(*fault)
    assert faulty != true
    child = process.CHILD.read_text().replace(line, faulty.replace("from __future__ import annotations\n", ""))
    assert line not in child
    (tmp_path / "child.py").write_text(child)
    monkeypatch.setattr(process, "CHILD", tmp_path / "child.py")


def test_where_nothing_can_be_sealed_nothing_runs(monkeypatch, tmp_path):
    seal_by(('sys.platform != "linux"', "True"), monkeypatch, tmp_path)
    with pytest.raises(InputError, match="cannot seal a process"):
        learn(GOOD)


UNSEALED = "library.prctl(SET_SECCOMP, FILTER, program, 0, 0)", "0"
OPENING, SIGNALLING = (("(0, 1, 3, 5, 8,", f"(0, 1, 3, {call}, 5, 8,") for call in (257, 62))  # of x86-64


@pytest.mark.parametrize("fault", [UNSEALED, *([OPENING, SIGNALLING] if machine() == "x86_64" else [])])
def test_a_seal_that_does_not_hold_is_seen(fault, monkeypatch, tmp_path):
    seal_by(fault, monkeypatch, tmp_path)
    with pytest.raises(InputError, match="the seal does not hold"):
        learn(GOOD)


def test_it_sees_what_is_public_and_nothing_else():
    body = "raise ValueError(repr(sorted(vars(session.public))) + repr(sorted(os.environ)) + repr(sys.argv))"
    with pytest.raises(OutsideFailed) as seen:
        learn(body)
    for name in ("classes", "features", "records", "epsilon"):
        assert name in str(seen.value)
    assert "DPSERVE" not in str(seen.value)
    assert "HOME" not in str(seen.value)


SUMS = "return [int(session.rows.codes.sum()), *session.rows.codes.shape, session.rows.target.tolist()]"


def test_rows_are_there_where_they_are_sent_and_nowhere_else():
    base, _ = next(pairs(SCHEMA, None, 200, Relation.ADD_REMOVE, 1, 1))
    rows = packed(SCHEMA, base, Relation.ADD_REMOVE)
    source = learner(SUMS).source
    body = {"source": source.text, "kind": "L", "parameters": {}, "public": sandbox.public_facts(public_of())}
    with SealedProcess(("csv",)) as sealed:
        sealed.send(body, rows)
        assert sealed.read()["model"] == [int(rows.bins.sum()), *rows.bins.shape, rows.labels.tolist()]
    with SealedProcess() as sealed:
        sealed.send(body)
        assert "'NoneType' object has no attribute 'codes'" in sealed.read()["failed"]


@pytest.mark.parametrize(
    ("module", "words"), [("nobody_has_it", "No module named"), ("starts_one", "started a thread")]
)
def test_what_cannot_be_loaded_before_the_seal_ends_it(module, words, monkeypatch, tmp_path):
    text = process.CHILD.read_text().replace("import_module(name)", "import_module(name) if name != 'starts_one' else "
        "__import__('threading').Thread(target=__import__('time').sleep, args=(9,), daemon=True).start()")  # fmt: skip
    (tmp_path / "child.py").write_text(text)
    monkeypatch.setattr(process, "CHILD", tmp_path / "child.py")
    with pytest.raises(InputError, match=words), SealedProcess((module,)):
        pass


def test_the_example_learns_and_keeps_its_promise():
    example = OutsideLearner(source_of(f"{EXAMPLE}:NaiveBayes"), {"prior": 2.0})
    public = public_of()
    recipe = calibrate(example, public, public.budget)
    base, _ = next(pairs(SCHEMA, None, 200, public.relation, 1, 1))
    session = Session(public, recipe.unit, recipe.plan, packed(SCHEMA, base, public.relation))
    ensemble = example.learn(session)
    assert session.close() == recipe.plan
    assert Decimal("0.99") < recipe.claim.epsilon <= 1
    assert ensemble.classes == ("no", "yes")
    assert any(any(term) for term in ensemble.terms)
    report = check(lambda: example, SCHEMA, public, 3)
    assert report.ok, report.to_json()
    assert report.releases == len(SCHEMA.features)
    assert len(EXAMPLE.read_text().splitlines()) < 100


def test_one_that_asks_by_what_it_heard_leaves_its_plan():
    odd = learner(f"for _ in range(1 + session.histogram([0])[0] % 2): session.histogram([1])\n{GOOD}")
    report = check(lambda: odd, SCHEMA, public_of(), 14)
    assert [fault.kind for fault in report.faults] in (["plan"], [])
    public = public_of()
    recipe = calibrate(odd, public, public.budget)
    base, _ = next(pairs(SCHEMA, None, 200, public.relation, 1, 1))
    rows = packed(SCHEMA, base, public.relation)
    with pytest.raises(PlanMismatch):  # one in two asks once more
        [odd.learn(Session(public, recipe.unit, recipe.plan, rows)) for _ in range(20)]


def test_a_changed_file_has_another_digest(tmp_path):
    place = tmp_path / "mine.py"
    place.write_text("class Learner: ...\n")
    before = source_of(str(place))
    place.write_text("class Learner: ....\n")
    assert source_of(str(place)).digest != before.digest != Source(before.text, "Other", "").digest
    with pytest.raises(InputError, match="cannot be read"):
        source_of(str(tmp_path / "none.py"))
    with pytest.raises(InputError, match="no such learner is installed"):
        source_of("none")


def test_the_command_checks_a_file(capsys):
    assert run(["learner", "check", f"{EXAMPLE}:NaiveBayes", "--neighbours", "2", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["ok"], body["neighbours"]) == (True, 2)
    assert body["source"] == {"author": str(EXAMPLE), "digest": source_of(f"{EXAMPLE}:NaiveBayes").digest}
