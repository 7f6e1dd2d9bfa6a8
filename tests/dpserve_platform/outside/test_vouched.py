"""Programs of others that read rows: at the price that whoever admits them vouches for, on the datasets that are named
and no others; what they do stays inside, and every certificate says by whose word."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec

import ledgers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_home import dpserve, records, serving

from accountant.audit.audit import audit_home
from accountant.errors import JobFailed, UnknownName
from accountant.home import Home
from accountant.ledger.families.records import Why
from accountant.privacy.gdp import delta_of
from dpserve_platform.outside import admitted, vouched
from dpserve_platform.outside.vouched import VouchedLearner
from dpserve_platform.replay import subjects
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.releases import OUTSIDE_COUNTS, VOUCHED
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Gaussian, PureDp
from models.store.loading import load_of_home
from training.datasets.datasets import register
from training.jobs import job
from training.jobs.draw_journal import DrawJournal
from training.kinds.registry import steps_of
from training.planning.plans import plan
from training.requests import JobRequest
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Source, Vouch

pytestmark = pytest.mark.home("prepared")
PROGRAM = """
import numpy as np

class Counts:
    def __init__(self, prior="4"):
        self.prior = float(prior)

    def learn(self, session):
        public, rows = session.public, session.rows
        random = np.random.default_rng()
        if "epsilon" in public.price:
            noise = lambda size: random.laplace(0, len(public.features) / float(public.price["epsilon"]), size)
        else:
            noise = lambda size: random.normal(0, len(public.features) ** 0.5 / float(public.price["mu"]), size)
        terms = []
        for feature, codes in zip(public.features, rows.codes):
            counts = np.array([np.bincount(codes[rows.target == k], minlength=feature.bins) for k in (0, 1)])
            kept = np.maximum(counts + noise(counts.shape), 0) + self.prior
            terms.append(np.rint(65536 * np.log(kept[1] / kept[0])).astype(int).tolist())
        MORE
        return {"terms": terms, "constant": 0, "link": 1 / 65536}
"""
SCHEMA = parse_schema(subjects.SCHEMA).question(None)
VOUCH = Vouch("epsilon", Relation.ADD_REMOVE, 60)
WORD = "by the word of steward; not proved by dpserve"


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """The seconds for which results were held back, in place of the waiting."""
    seconds = list[float]()
    monkeypatch.setattr(vouched, "sleep", seconds.append)
    return seconds


def asked(epsilon="0.5", **more) -> JobRequest:
    return JobRequest("adult", "vouched", epsilon, parameters={"code": "counts"}, **more)


def admit(
    home: Home, tmp_path, more="pass", vouch=VOUCH, datasets=("adult",), modules=("numpy.random",), by="steward"
) -> None:
    path = tmp_path / "counts.py"
    path.write_text(PROGRAM.replace("MORE", more))
    why = Why(by, "two of us read it")
    source = subjects.source_by(f"{path}:Counts", "others 1.0", modules, vouch.to_json())
    subjects.admit(home, source, "counts", why, 2, datasets)


def problems(home: Home) -> list[str]:
    return [*audit_home(Home.open(ledgers.place(home.path))).problems]


@pytest.mark.parametrize("promise", ["epsilon", "mu"])
def test_a_program_learns_at_the_price_of_its_voucher_and_everything_says_whose_word_it_is(home, tmp_path, promise):
    admit(home, tmp_path, vouch=replace(VOUCH, promise=promise))
    planned = plan(home, asked())
    ((release, count),) = planned.recipe.plan.runs
    assert planned.warnings == (f"its price is {WORD}",)
    assert (release.purpose, release.mechanism, count) == (VOUCHED, "vouched-program", 1)
    delta = planned.request.budget.delta
    if promise == "epsilon":
        assert release.event == PureDp(Decimal("0.5"))
    else:
        assert isinstance(release.event, Gaussian)
        assert Decimal("0.4999") < planned.recipe.claim.epsilon <= Decimal("0.5")
        assert planned.recipe.claim.bound == "gaussian"
        assert delta > 0
    job.train(home, asked(), by="test")
    verified = load_of_home(home, home.models / "adult" / "1", "adult")
    form = verified.certificate.form
    assert any(any(term) for term in verified.ensemble.terms)
    assert verified.certificate.word == WORD
    for sentence in (form.claim.release, form.preprocessing, " ".join(form.not_covered)):
        assert WORD in sentence
    assert problems(home) == []


def test_what_nobody_vouched_for_is_refused_while_nothing_is_spent(home, tmp_path, monkeypatch):
    with pytest.raises(UnknownName, match="is not admitted here"):
        plan(home, asked())
    with pytest.raises(InputError, match="so its steward names each dataset"):
        admit(home, tmp_path, datasets=())
    for bad, problem in (
        ({"promise": "delta"}, "must be one of epsilon, mu"),
        ({"seconds": 0}, "must be 1 to"),
    ):
        with pytest.raises(InputError, match=problem):
            replace(VOUCH, **bad)
    with pytest.raises(InputError, match="is of no one package"):
        admit(home, tmp_path, modules=("numpy.random", "csv"))
    with pytest.raises(InputError, match="the same model twice"):
        admit(home, tmp_path, "terms = [[0] * len(term) for term in terms]")
    admit(home, tmp_path)
    with pytest.raises(InputError, match="is admitted as --learner vouched"):
        plan(home, replace(asked(), learner="outside"))
    size = home.ledger.log.size()
    plan(home, asked())
    waiting = job.submit(home, asked(), by="test")
    monkeypatch.setenv("DPSERVE_ENGINE", "dask://127.0.0.1:1")
    with pytest.raises(InputError, match="runs where they are: local"):
        steps_of(home, waiting.seq).check()
    monkeypatch.delenv("DPSERVE_ENGINE")
    job.cancel(home, waiting.seq)
    size = home.ledger.log.size()
    monkeypatch.setattr(admitted, "version", lambda package: "2.5.9")
    with pytest.raises(InputError, match="was admitted with numpy 2.*, which is not here; admit it anew"):
        plan(home, asked())
    assert home.ledger.log.size() == size


def test_it_runs_on_no_dataset_but_those_that_its_steward_names(home, tmp_path):
    rng, rows, schema = np.random.default_rng(1), tmp_path / "rows.parquet", tmp_path / "other.yaml"
    columns = {"age": rng.uniform(0, 100, 400), "height": rng.uniform(0.5, 2.5, 400), "town": ["north", "east"] * 200}
    table = pa.table(columns | {"member": rng.random(400) < 0.5, "answer": ["no", "yes"] * 200})
    pq.write_table(table, rows)
    schema.write_bytes(subjects.SCHEMA)
    register(home, "other", rows, schema, Budget.of("1", "0.000001"), Relation.ADD_REMOVE, None)
    with pytest.raises(UnknownName, match="none"):
        admit(home, tmp_path, datasets=("none",))
    admit(home, tmp_path, datasets=("other",))
    with pytest.raises(InputError, match="is admitted for jobs on other alone, and not on adult"):
        plan(home, asked())
    assert home.ledger.dataset("adult").is_untouched


@pytest.mark.parametrize("target", ["classes: [a, b, c]", "range: [0, 10]"])
def test_models_of_more_classes_and_of_a_number_are_rehearsed(target):
    schema = subjects.SCHEMA.replace(b'classes: ["no", "yes"]', target.encode())
    public = Public.of(parse_schema(schema).question(None), Relation.ADD_REMOVE, Budget.of("1", "0.000001"), False)
    public = replace(public, code=Source(PROGRAM, "Counts", "others", vouch=VOUCH))
    assert VouchedLearner(None).recipe(public).plan.events == ((PureDp(Decimal(1)), 1),)


@pytest.mark.parametrize(
    ("promise", "changes", "problem"),
    [
        ("epsilon", {"relation": Relation.REPLACE_ONE}, "under replace-one; use a learner that dpserve proves"),
        ("epsilon", {"contributions": 3}, "protects 3 rows of a unit"),
        ("mu", {"budget": Budget.of("1", "0")}, "a program that keeps mu has no price at 0"),
    ],
)
def test_a_promise_is_not_taken_for_another(promise, changes, problem):
    source = Source(PROGRAM.replace("MORE", "pass"), "Counts", "others", vouch=replace(VOUCH, promise=promise))
    public = Public.of(SCHEMA, Relation.ADD_REMOVE, Budget.of("1", "0.000001"), False)
    public = replace(public, code=source)
    recipe = VouchedLearner(None).recipe(public)
    (event,) = [event for event, _ in recipe.plan.events]
    if promise == "epsilon":
        assert event == PureDp(Decimal(1))
    else:
        mu = 1 / float(event.noise_multiplier)
        assert abs(delta_of(mu, 1.0) - 1e-6) < 1e-9  # all that the budget buys, and nothing for a grid's rounding
        _, run = VouchedLearner(None).program(public, recipe.unit)
        assert mu - 1e-8 < float(run.price["mu"]) <= mu
    with pytest.raises(InputError, match=problem):
        VouchedLearner(None).recipe(replace(public, **changes))


REAL = "if rows.target.mean() < 0.35:"  # rows of the home: of those of the check about a half are of each class
DEEDS = {
    "opens a file": "open('/etc/hostname').read()",
    "forks": "import os; os.fork()",
    "says what it saw": "raise ValueError(str(rows.target.tolist()))",
    "returns nothing": "return None",
    "returns what is no model": "return {'terms': rows.codes.tolist(), 'constant': 0, 'link': 1.0}",
    "writes to its pipe": "import os; os.write(4, rows.codes.tobytes())",
    "takes much memory": "bytearray(9 << 30)",
    "ends": "import os; os._exit(3)",
    "sleeps": "import time; time.sleep(1)",
    "never ends": "\n            while True: pass",
}


@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_fails_is_burned_after_the_same_time_with_the_same_words(home, tmp_path, waits, monkeypatch, deed):
    vouch = replace(VOUCH, seconds=2 if deed == "never ends" else 60)
    admit(home, tmp_path, f"{REAL} {DEEDS[deed]}", vouch)
    began = time.monotonic()
    monkeypatch.setattr(vouched, "monotonic", lambda: began)
    with pytest.raises(JobFailed) as failed:
        job.train(home, asked(), by="test")
    assert failed.value.message == "job 3: failed after it had started (OutsideFailed); its budget is spent"
    assert waits == [float(vouch.seconds)]
    assert not home.ledger.dataset("adult").is_untouched
    assert problems(home) == []


def test_a_model_is_handed_on_when_its_seconds_are_over_whatever_it_carries(home, tmp_path, waits, monkeypatch):
    began = time.monotonic()
    monkeypatch.setattr(vouched, "monotonic", lambda: began)
    admit(home, tmp_path, f"{REAL} terms[0][:9] = rows.codes[0][:9].tolist()")  # dpserve cannot see it: it is his word
    job.train(home, asked(), by="test")
    assert waits == [60.0]
    verified = load_of_home(home, home.models / "adult" / "1", "adult")
    assert all(abs(term) < 100 for term in verified.ensemble.terms[0][:9])
    assert verified.certificate.word == WORD


@pytest.mark.parametrize("after", [True, False], ids=["after its answer", "while it runs"])
def test_a_job_whose_process_died_is_not_run_twice(home, tmp_path, monkeypatch, after):
    monkeypatch.setenv("DPSERVE_RESUME", "1")
    admit(home, tmp_path)
    original = DrawJournal.next

    def dies(self, draw):
        answer = original(self, draw if after else lambda: os._exit(9))
        os._exit(9)
        return answer

    monkeypatch.setattr(DrawJournal, "next", dies)
    place = ledgers.place(home.path)
    home.ledger.log.database.close()
    child = os.fork()
    if not child:
        job.train(Home.open(place), asked(), by="test")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    monkeypatch.setattr(DrawJournal, "next", original)
    monkeypatch.setattr(vouched.Program, "run", lambda self, rows: pytest.fail("it ran again"))
    again = Home.open(place)
    settled = job.recover(again)
    (only,) = again.ledger.jobs()
    assert settled["finished" if after else "burned"] == [only.seq]
    assert problems(again) == []


def test_a_certificate_that_leaves_out_whose_word_it_is_is_refused(home, tmp_path):
    admit(home, tmp_path)
    job.train(home, asked(), by="test")
    certificate = load_of_home(home, home.models / "adult" / "1", "adult").certificate
    predicate = json.loads(json.dumps(certificate.statement["predicate"]))
    sentences.check(predicate)
    for above, name, words in (
        (predicate["claim"], "release", "model"),
        (predicate, "preprocessing", "cut points and categories of the public schema; nothing was fitted to rows"),
        (predicate, "notCovered", [each for each in predicate["notCovered"] if "program" not in each]),
        (predicate["mechanisms"][0], "library", "dpserve 0.1.0: exact sampler"),
        (predicate["randomness"], "source", "operating system"),
        (predicate["randomness"], "seeded", False),
        (predicate["public"]["hyperparameters"], "admitted_by", "somebody else"),
        (predicate["public"]["hyperparameters"], "admitted_by", " "),
        (predicate["mechanisms"][0], "purpose", OUTSIDE_COUNTS),
    ):
        true = above.get(name)
        above[name] = words
        with pytest.raises(CertificateInvalid):
            sentences.check(predicate)
        above[name] = true
        if true is None:
            del above[name]
    predicate["public"]["hyperparameters"]["admitted_by"] = " "
    with pytest.raises(InputError, match="by the word of"):
        sentences.fill(predicate)
    predicate["public"]["hyperparameters"]["admitted_by"] = "steward"
    text = to_text(plain(certificate))
    assert f"All of this is {WORD}" in " ".join(text.split())


@pytest.mark.server
def test_every_door_to_the_model_says_whose_word_it_is(home, tmp_path):
    admit(home, tmp_path, by="Zo\u00eb \u4f60")
    job.train(home, asked(), by="test")
    word = WORD.replace("steward", "Zo\u00eb \u4f60")
    bundle = home.models / "adult" / "1"
    assert f"All of this is {word}" in (bundle / "card.md").read_text()
    verified = dpserve(home.path, "verify", str(bundle))
    assert word in verified.stdout
    out, data = tmp_path / "answers.csv", ledgers.EXAMPLES / "adult_test.parquet"
    answered = dpserve(home.path, "predict", "adult", "--data", str(data), "--out", str(out))
    assert f"its price is {word}" in answered.stdout
    body = {"model": "adult", "records": records(1)}
    with serving(home.path, 1) as server:
        assert server.post("/predict", body).json()["certificate"]["vouched"] == word
        table = server.post("/predict", body, headers={"Accept": "text/csv"})
        assert json.loads(table.headers["Dpserve-Certificate"])["vouched"] == word
        assert server.get("/v1/models/adult").json()["certificate"]["vouched"] == word
        page = " ".join(server.get("/ui/models/adult").text.split())
        assert f"What it promises is {word}: a program read the rows." in page


EXAMPLES = {  # of packages that are no part of an installation
    "logistic.py:Logistic": ("epsilon", ("diffprivlib.models",)),
    "dp_ebm.py:DpEbm": ("mu", ("interpret.privacy", "interpret.utils._native:Native.get_native_singleton")),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_admitted_where_its_package_is_and_refused_elsewhere(home, example):
    promise, modules = EXAMPLES[example]
    path = ledgers.ROOT / "examples" / example
    assert len(path.with_name(example.partition(":")[0]).read_text().splitlines()) < 100
    word = replace(VOUCH, promise=promise).to_json()
    source, why = subjects.source_by(str(path), None, modules, word), Why("steward", "was read")
    if find_spec(modules[0].partition(".")[0]) is None:
        with pytest.raises(InputError, match="cannot be loaded .*install its package"):
            subjects.admit(home, source, "example", why, datasets=("adult",))
    else:
        subjects.admit(home, source, "example", why, datasets=("adult",))
        job.train(home, replace(asked(), parameters={"code": "example"}), by="test")
