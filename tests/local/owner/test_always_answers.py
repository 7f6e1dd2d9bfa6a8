"""Every owner answers every campaign that it accepts, whatever its rows are: against the platform as it is."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import owners
import pytest
import sharing
from one_of_k_law import law

from accountant.home import Home
from accountant.noise import shares
from dpserve_verify.errors import InputError
from local.aggregator.settings import read_settings as read_aggregator
from local.campaign import campaigns, shared_campaigns
from local.owner import founding, own_rows, program, reports
from local.owner.own_ledger import OwnLedger
from local.owner.own_rows import open_table
from local.owner.settings import Pinned, read_settings
from local.reports.definition import Definition
from local.reports.groups import Groups
from local.reports.shared import SharedDefinition
from local.turns.definition import BoostedDefinition
from local.turns.turns import document_after

OWNERS, TURNED = 32, 31
TOML = """\
url = "http://127.0.0.1:1"
trust = "{trust}"
rows = "{rows}"
ledger = "owner.db"
pace_seconds = 0.001

[question]
target = "answer"
{answers}
features = ["a", "b", "c"]

[policy]
total_epsilon = "1000"
largest_epsilon = "5"
most_rounds = 4
total_delta = "1"
largest_delta = "1"
aggregators = ["{one}"]
"""
GOOD = "a,b,c,answer\n" + "0.5,-1,u,yes\n-2,1,v,no\n" * 12
NUMBER = {'target: {name: answer, classes: ["no", "yes"]}': "target: {name: answer, range: [0, 10]}"}
LONG = "9" * 5000
HEAD = "a,b,c,answer\n"
FILES = {  # whatever an owner may hold
    "good": GOOD.encode(),
    "empty": b"",
    "header alone": HEAD.encode(),
    "another answer": (HEAD + "0.5,-1,u,perhaps\n" * 24).encode(),
    "one other answer": (GOOD + "0.5,-1,u,maybe\n").encode(),
    "blank answer": (GOOD + "0.5,-1,u,\n").encode(),
    "no answers": b"a,b,c\n0.5,-1,u\n",
    "no feature": b"a,b,answer\n0.5,-1,yes\n",
    "text where a number is": (HEAD + "high,-1,u,yes\n" * 24).encode(),
    "truth where a number is": (HEAD + "true,false,u,true\n").encode(),
    "numbers": (HEAD + "0.5,-1,u,7\n1,1,v,3\n" * 12).encode(),
    "numbers beyond": (HEAD + f"1e999,-inf,u,1e308\n{LONG},-{LONG},u,{LONG}\n0,0,u,-1e999\n").encode(),
    "missing": (HEAD + ",nan,,yes\nNA,null,,no\n").encode(),
    "NaN answers": (HEAD + "1,1,u,nan\n1,1,u,NaN\n").encode(),
    "torn": (GOOD + "1,2\n").encode(),
    "twice the same name": b"a,a,c,answer\n1,2,u,yes\n",
    "not UTF-8": GOOD.encode() + b"\xff\xfe,1,u,yes\n",
    "NUL": (GOOD + "\0,\0,\0,\0\n").encode(),
    "open quote": (GOOD + '"1,2,u,yes\n').encode(),
    "binary": bytes(range(256)) * 9,
    "blank cells": (HEAD + " , ,u, \n").encode(),
    "surrogates": GOOD.encode() + "1,1,\ud800,yes\n".encode("utf-8", "surrogatepass"),
    "many": (HEAD + "0.5,-1,u,yes\n" * 9000).encode(),
    "bad.parquet": b"PAR1 not a table",
}


def fuzzed(count: int) -> dict[str, bytes]:
    """Files of random cells: what fits among what does not."""
    rng = np.random.default_rng(35)
    cells = ["0.5", "-1", "", "yes", "no", "maybe", "7", "u", "w", "nan", "inf", "1e308", "true", "0", " ", "é", "1_0"]
    made = {}
    for at in range(count):
        rows = rng.choice(cells, (int(rng.integers(0, 60)), 4))
        made[f"fuzz {at}"] = (HEAD + "".join(",".join(row) + "\n" for row in rows)).encode()
    return made


class Asked:
    """A home that asks in every way there is, and the offers of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, Home.init({"DPSERVE_HOME": str(folder / "home")})
        self.whom = sharing.aggregators(folder, self.home, "http://127.0.0.1:1")
        self.one = read_aggregator(self.whom[0]).public("first").fingerprint
        owners.asking(folder, self.home, OWNERS, 1, "linear", epsilon="1")
        owners.asking(folder, self.home, OWNERS, 1, "lr", epsilon="1", learner="local-lr")
        owners.asking(folder, self.home, OWNERS, 1, "linear3", epsilon="1", classes="3")
        for name, learner in (("stump", "local-stump"), ("ncc", "local-ncc"), ("turned", "local-lr")):
            owners.asking(folder, self.home, OWNERS, 1, name, epsilon="1", learner=learner, rounds="1")
        owners.asking(folder, self.home, OWNERS, 1, "weighs", epsilon="1", learner="local-ncc", rounds="1")
        owners.answer_turn(self.home, "weighs", owners.people(OWNERS))
        campaigns.end_turn(self.home, "weighs") if campaigns.state(self.home, "weighs")["turn"] == 1 else None
        sharing.asking(folder, self.home, self.whom, OWNERS, 1, "shares", epsilon="1")
        ((was, becomes),) = NUMBER.items()
        number = owners.SCHEMA.replace(was, becomes)
        sharing.asking(
            folder, self.home, self.whom, OWNERS, 1, "number", epsilon="1", schema=number, population="numbers"
        )
        self.names = ("linear", "lr", "linear3", "stump", "ncc", "turned", "weighs", "shares", "number")

    def definition(self, name: str):
        return campaigns.load(self.home, name).definition

    def number(self, name: str) -> int:
        """An owner whose turn it is."""
        return TURNED if name == "weighs" else 0

    def answers(self, name: str) -> str:
        bounded = getattr(self.definition(name), "bounded", None)
        return f"classes = {list(self.definition(name).classes)}" if bounded is None else "range = [0, 10]"

    def settings(self, rows: str, raw: bytes | None, answers: str):
        """Those of a new owner, whose ledger is empty."""
        own = self.folder / "owners" / f"{len(list((self.folder / 'owners').glob('*')))}"
        own.mkdir(parents=True)
        name = "rows.parquet" if rows.endswith(".parquet") else "rows.csv"
        if raw is not None:
            (own / name).write_bytes(raw)
        text = TOML.format(trust=self.home.path / "trust.json", rows=name, answers=answers, one=self.one)
        (own / "owner.toml").write_text(text)
        return read_settings(own / "owner.toml")

    def task(self, name: str) -> reports.Task:
        definition, document = self.definition(name), b""
        if name == "weighs":
            document = document_after(campaigns.folder_of(self.home, name), 1)
        return reports.read_task(definition, self.number(name), document)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return Asked(tmp_path_factory.mktemp("asked"))


@pytest.mark.slow
def test_every_owner_answers_every_campaign_and_is_charged(asked):
    """Each kind of campaign, each file: one report, of one length, for the campaign's price, taken in by the platform's
    own reader; and what is said to the owner is the same."""
    for name in asked.names:
        number, offer, definition = asked.number(name), campaigns.offer(asked.home, name), asked.definition(name)
        invitation = campaigns.invitation(asked.home, name, number)
        heads, words = set(), set()
        for what, raw in {**FILES, **fuzzed(12)}.items():
            settings = asked.settings(what, raw, asked.answers(name))
            line = program.prepare(settings, offer, name, invitation)
            (stored,) = OwnLedger(settings.ledger).lines()
            assert stored.body == line.body
            assert (stored.epsilon, stored.delta) == (definition.epsilon, definition.delta), what
            words.add(program.words(line).replace(f"number {program.number_of_report(line)},", "number N,"))
            if isinstance(definition, SharedDefinition):
                heads.add(len(line.body))
                assert len(line.body) == len(invitation) + 1 + 2 * definition.share_bytes
            else:
                most = 2 if name == "weighs" else definition.candidates
                assert 0 <= program.number_of_report(line) < most
                heads.add(line.body.replace(str(program.number_of_report(line)).encode() + b"}", b"N}"))
        assert len(heads) == len(words) == 1, name
        if isinstance(definition, SharedDefinition):
            shared_campaigns.receive_shares(asked.home, name, line.body)
        else:
            campaigns.receive(asked.home, name, invitation, program.number_of_report(line))
        assert campaigns.state(asked.home, name)["reports"] >= 1


def test_silence_tells_no_secret(asked, tmp_path):
    """The audit's game: four campaigns, whose classes halve sixteen secrets, told all of them for nothing. Pinned
    wrongly in the platform's favour: an owner would answer each with the classes that it asks."""
    codes = [f"icd{at}" for at in range(16)]
    schema = "target: {{name: answer, classes: {0}}}\nrecords: 64\nfeatures:\n  a: {{type: numeric, range: [-3, 3]}}\n"
    answered = np.zeros((4, 16), bool)
    spent = np.zeros(16)
    for bit in range(4):
        classes, name = [code for at, code in enumerate(codes) if at >> bit & 1], f"halves{bit}"
        (tmp_path / "schema.yaml").write_text(schema.format(classes))
        campaigns.found_population(asked.home, f"p{bit}", tmp_path / "schema.yaml", 64, "10", None)
        asking = campaigns.CampaignRequest(name, f"p{bit}", "local-stump", "0.001", 64, None, 1, rounds=1)
        owners.open_anyway(asked.home, asking)
        offer = campaigns.offer(asked.home, name)
        for secret in range(16):
            settings = asked.settings("rows.csv", f"a,answer\n1,{codes[secret]}\n".encode(), f"classes = {classes}")
            line = program.prepare(settings, offer, name, campaigns.invitation(asked.home, name, secret))
            answered[bit, secret] = line.epsilon == Decimal("0.001")
            spent[secret] += float(line.epsilon)
    assert answered.all()
    assert np.allclose(spent, 0.004)


@pytest.mark.parametrize("name", ["linear", "lr", "linear3", "stump", "ncc", "turned", "weighs"])
def test_exact_law_over_all_rows_is_within_e_epsilon(asked, name):
    """Every file, those that do not fit among them: the law of what is sent, counted in integers."""
    task = asked.task(name)
    definition = task.definition
    mechanism = definition.mechanism_in(2) if name == "weighs" else definition.mechanism
    laws = set()
    for what, raw in {**FILES, **fuzzed(12)}.items():
        settings = asked.settings(what, raw, asked.answers(name))
        laws.add(tuple(law(mechanism, reports._scores(task, open_table(settings.rows))[0].tolist())))
    with localcontext(prec=50):
        most = Fraction(definition.epsilon.exp())
    worst = max(max(p / q, q / p) for one, other in combinations(laws, 2) for p, q in zip(one, other, strict=True))
    assert most * (1 - Fraction(1, 2**20)) < worst <= most


def test_rows_that_do_not_fit_weigh_nothing(asked):
    """An owner's report is that of its rows that fit, and of none that of an owner without rows."""
    for name in ("linear", "lr", "linear3", "stump", "ncc", "turned", "weighs"):
        task = asked.task(name)
        mixed = GOOD + "high,-1,u,yes\n0.5,-1,u,perhaps\n1,1,v,\n" * 9
        found = [
            reports._scores(task, open_table(asked.settings("rows.csv", text.encode(), asked.answers(name)).rows))
            for text in (GOOD, mixed, "", HEAD + "high,-1,u,yes\n" * 24)
        ]
        assert np.array_equal(found[0], found[1]), name
        assert np.array_equal(found[2], found[3]), name
        assert name == "weighs" or not np.array_equal(found[0], found[2]), name  # which is one public coin
    for name in ("shares", "number"):
        layout = asked.definition(name).layout
        texts = (HEAD + "1,1,u,yes\n1,1,v,7\n", HEAD + "1,1,u,yes\n1,1,v,7\n" + "1,x,u,yes\nx,1,u,7\n,,u,\n", "")
        values = []
        for text in texts:
            table = open_table(asked.settings("rows.csv", text.encode(), asked.answers(name)).rows)
            rows = own_rows.fit_rows(table, asked.definition(name))
            values.append(layout.statistic(rows.codes, rows.answers, rows.fits))
        assert np.array_equal(values[0], values[1])
        assert values[0].any()
        assert not values[2].any()


@pytest.mark.parametrize("name", ["shares", "number"])
def test_length_over_all_rows_is_within_the_sensitivity(asked, name):
    """Every file, in whole numbers; and some row is as long as the sensitivity says, but for rounding."""
    task, layout = asked.task(name), asked.definition(name).layout
    lengths = []
    for what, raw in {**FILES, **fuzzed(40)}.items():
        settings = asked.settings(what, raw, asked.answers(name))
        sent = opened(asked, name, task, reports.share(task, open_table(settings.rows)))
        lengths.append(sum(int(value) ** 2 for value in sent))
    assert min(lengths) == 0
    assert (layout.sensitivity - 2) ** 2 < max(lengths) <= layout.sensitivity**2


def opened(asked: Asked, name: str, task: reports.Task, sealed: bytes) -> np.ndarray:
    """What both aggregators together would find."""
    definition = asked.definition(name)
    size = definition.share_bytes
    halves = [
        shares.from_bytes(
            shares.unseal(sealed[at * size :][:size], read_aggregator(asked.whom[at]).seal, definition.about(0, at))
        )
        for at in (0, 1)
    ]
    return shares.join(*halves)


@pytest.mark.parametrize("name", ["shares", "number"])
def test_what_is_too_long_is_sent_as_zeros_and_a_fault_as_well(asked, name, monkeypatch):
    """A bug in what rows come to, for every kind: the length is compared last, in integers, and an answer is sent."""
    task, definition = asked.task(name), asked.definition(name)
    table = open_table(
        asked.settings("rows.csv", (HEAD + "1,1,u,yes\n1,1,v,10\n").encode(), "classes = ['no','yes']").rows
    )
    most, honest = definition.layout.sensitivity, opened(asked, name, task, reports.share(task, table))
    assert 0 < sum(int(value) ** 2 for value in honest) <= most**2
    real = Groups.statistic
    for wrong in (
        lambda *given: real(*given) * 2,
        lambda *given: np.full_like(real(*given), -(2**63)),
        lambda *given: np.full_like(real(*given), 2**32),  # whose squares sum to 0 modulo 2^64
        lambda *given: 1 / 0,
    ):
        monkeypatch.setattr(Groups, "statistic", wrong)
        assert not opened(asked, name, task, reports.share(task, table)).any()
    monkeypatch.setattr(Groups, "statistic", real)
    monkeypatch.setattr(reports, "fit_rows", lambda *given: 1 / 0)
    assert not opened(asked, name, task, reports.share(task, table)).any()


def test_a_fault_of_ours_is_no_silence(asked, monkeypatch):
    monkeypatch.setattr(reports, "fit_rows", lambda *given: 1 / 0)
    for name in ("linear", "stump", "weighs"):
        task = asked.task(name)
        assert {reports.draw(task, own_rows.OwnTable({}, 0)) for _ in range(200)} <= set(range(64))


def test_an_answer_comes_at_a_public_time(asked, monkeypatch):
    """Whole multiples of the pace after the question, however long the rows took."""
    now, real = [100.0], program.body_of
    offer, invitation = campaigns.offer(asked.home, "linear"), campaigns.invitation(asked.home, "linear", 0)

    def wait(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(program.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(program.time, "sleep", wait)
    for took, comes in ((0.001, 1), (0.4, 1), (0.999, 1), (2.3, 3)):
        began = now[0]
        monkeypatch.setattr(program, "body_of", lambda *given, took=took: (wait(took), real(*given))[1])
        settings = replace(asked.settings("rows.csv", GOOD.encode(), asked.answers("linear")), pace=1.0)
        program.prepare(settings, offer, "linear", invitation)
        assert now[0] - began == pytest.approx(comes)


def test_what_may_be_asked_is_pinned_and_refused_without_a_row(asked, monkeypatch):
    """By the definition alone: rows that would fit are refused alike, and nothing is charged."""
    monkeypatch.setattr(program, "body_of", lambda *given: pytest.fail("a row was looked at"))
    offer = campaigns.offer(asked.home, "linear")
    bodies = {
        "target": ('target = "b"', '["a", "c"]', "['no', 'yes']"),
        "other words": ('target = "answer"', '["a", "b", "c"]', "['no', 'maybe']"),
        "more words": ('target = "answer"', '["a", "b", "c"]', "['no', 'yes', 'maybe']"),
        "a feature": ('target = "answer"', '["a", "b"]', "['no', 'yes']"),
    }
    for target, features, classes in bodies.values():
        settings = asked.settings("rows.csv", GOOD.encode(), f"classes = {classes}")
        path = settings.rows.parent / "owner.toml"
        text = path.read_text().replace('target = "answer"', target).replace('["a", "b", "c"]', features)
        path.write_text(text)
        with pytest.raises(InputError, match="alone"):
            program.prepare(read_settings(path), offer, "linear", campaigns.invitation(asked.home, "linear", 0))
        assert OwnLedger(settings.ledger).lines() == []
    bare = path.read_text()
    path.write_text(bare[: bare.index("[question]")] + bare[bare.index("[policy]") :])
    with pytest.raises(InputError, match="dpserve owner init"):
        program.prepare(read_settings(path), offer, "linear", campaigns.invitation(asked.home, "linear", 0))
    assert program.summarize(read_settings(path))["spent"] == "0"  # an older file still shows what was sent
    number = asked.definition("number")
    for ends, fine in (((0.0, 10.0), True), ((-1.0, 99.0), True), ((1.0, 10.0), False), ((0.0, 9.0), False)):
        question = Pinned("answer", (), ("a", "b", "c"), ends)
        if fine:
            question.check(number)
        else:
            with pytest.raises(InputError, match="within yours"):
                question.check(number)


def test_settings_that_leave_something_open_are_refused(asked):
    good = 'target = "answer"\nclasses = ["no", "yes"]\nfeatures = ["a", "b", "c"]'
    path = asked.settings("rows.csv", b"", 'classes = ["no", "yes"]').rows.parent / "owner.toml"
    text = path.read_text()
    assert good in text
    words, columns = 'classes = ["no", "yes"]', '["a", "b", "c"]'
    ranges = [good.replace(words, f"range = {ends}") for ends in ("[1, 0]", "[0, inf]", "[nan, 1]", "[0]", '"0, 1"')]
    classes = [good.replace('["no", "yes"]', made) for made in ('["no"]', '["no", "no"]', '["no", ""]', "[1, 2]")]
    others = [good.replace(columns, '["a", "answer"]'), good.replace(columns, "[]"), good + "\nrange = [0, 1]"]
    ends = [f"{good}\n[ranges]\na = {made}" for made in ("[-inf, 3]", "[nan, nan]", "[3, 3]")]
    for wrong in (*ranges, *classes, *others, *ends, good.replace("classes", "# classes")):
        path.write_text(text.replace(good, wrong))
        with pytest.raises(InputError):
            read_settings(path)
    for pace in ("0", "-1", "nan", "inf", '"1"', "true", "4000"):
        path.write_text(text.replace("pace_seconds = 0.001", f"pace_seconds = {pace}"))
        with pytest.raises(InputError, match="pace_seconds"):
            read_settings(path)


def test_a_new_file_is_written_and_says_what_the_rows_hold(tmp_path):
    (tmp_path / "rows.csv").write_text("a,answer\n1,yes\n2,\n3,perhaps\n")
    new = founding.NewOwner(
        "https://campaigns.example", "rows.csv", Pinned("answer", ("no", 'y"es', "yes"), ("a", "b")), "5", "2", 30
    )
    found = founding.found_owner(tmp_path / "owner.toml", new)
    assert found == {"rows": 3, "answers_that_fit": 1, "missing_columns": ["b"], "problem": None}
    settings = read_settings(tmp_path / "owner.toml")
    assert settings.policy.question == new.question
    assert (settings.policy.total_epsilon, settings.policy.largest_epsilon, settings.policy.least_owners) == (5, 2, 30)
    with pytest.raises(InputError, match="is there already"):
        founding.found_owner(tmp_path / "owner.toml", new)
    for wrong in (replace(new, rows="none.csv"), replace(new, total_epsilon="0"), replace(new, url="http://far.example"),
                  replace(new, question=Pinned("answer", ("yes",), ("a",)))):  # fmt: skip
        with pytest.raises(InputError):
            founding.found_owner(tmp_path / "other.toml", wrong)
        assert not (tmp_path / "other.toml").exists()
    (tmp_path / "rows.csv").write_text("a,answer\n1\n")
    assert "header" in founding.check_rows(tmp_path / "owner.toml")["problem"]


def test_memory_for_rows_is_bounded_by_the_campaign_alone(asked):
    for name in asked.names:
        definition = asked.definition(name)
        most = own_rows.max_rows(definition)
        assert most * definition.row_numbers <= own_rows.MAX_CELLS
        assert most > 10_000
    wide = replace(asked.definition("linear"), candidates=2, favoured=1)
    table = own_rows.OwnTable({"a": ["1"] * 50, "b": ["1"] * 50, "c": ["u"] * 50, "answer": ["yes"] * 50}, 50)
    assert len(own_rows.fit_rows(table, wide).fits) == 50
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_rows, "MAX_CELLS", 40 * wide.row_numbers)
        assert len(own_rows.fit_rows(table, wide).fits) == 40
    assert isinstance(wide, Definition)
    assert isinstance(asked.definition("ncc"), BoostedDefinition)
