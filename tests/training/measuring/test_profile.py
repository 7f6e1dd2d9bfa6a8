"""From the command to a signed profile: charged once, given again for nothing, verified offline, refused with why."""

from __future__ import annotations

import json
from decimal import Decimal

import ledgers
import pytest
from counted import make_home, spent

from accountant.audit.audit import audit_home
from accountant.certificates.profile import PROFILE
from accountant.errors import UnknownName, WrongState
from accountant.ledger.families.records import HOLDOUT
from dpserve_verify.audit.replay import Replay
from dpserve_verify.certificates.stated import Stated
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, InputError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from models.explain.reports import SUFFIXES
from models.profile import report
from models.profile.stated import check
from serving.pages.parts.burndown import burndown
from training.jobs import job
from training.kinds import stated_steps
from training.kinds.registry import steps_of
from training.measuring.profile import profile, release
from training.requests import JobRequest, ProfileRequest

pytestmark = pytest.mark.home("place")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A home with Adult, half kept aside, and other rows under replace-one."""
    return make_home(tmp_path_factory.mktemp("counted"), 4000, "2", "0.5", "range: [17, 90]")


@pytest.mark.slow
def test_a_profile_is_charged_once_and_given_again_for_nothing(home, tmp_path):
    body = job.measure(home, ProfileRequest("adult", "0.5", pairs=(("age", "sex"),)), by="test")
    found, charged = body["profile"], spent(home)
    assert (found["part"], found["noise"], len(found["columns"]), body["model"]) == ("training", "gaussian", 15, "")
    assert float(found["records"][1]) < 2100 < 2 * float(found["records"][2])
    again = job.measure(home, ProfileRequest("adult", "0.50", pairs=(("age", "sex"),)), by="other")
    assert (again["job"], again["profile"], spent(home)) == (body["job"], found, charged)
    pure = job.measure(home, ProfileRequest("adult", "0.5", "0", HOLDOUT, ("age",)), by="test")["profile"]
    assert (pure["noise"], pure["part"], spent(home), spent(home, part=HOLDOUT)) == (
        "laplace",
        "holdout",
        charged,
        "0.5",
    )
    assert [each["job"] for each in release.profiles_of(home, "adult")][1] == body["job"]
    model = job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}), by="test")
    assert (model["version"], model["version_state"]) == (1, "champion")  # a profile binds no name of a model
    job.train(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 5}, promote=True), by="test")
    assert burndown(home.ledger, "adult")[-1].jobs == 3  # what stands between price and request hides no charge
    found_by_audit = audit_home(home)
    assert found_by_audit.ok, found_by_audit.problems
    for suffix in SUFFIXES:
        report.write(found, tmp_path / f"report{suffix}")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 16
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert (tmp_path / "report.csv").read_text().startswith("column,figure,value,low,high\nage,missing,")
    with pytest.raises(InputError, match="must end in"):
        report.write(found, tmp_path / "report.pdf")


def test_targets_are_columns_and_a_public_number_of_rows_is_said(home):
    found = job.measure(home, ProfileRequest("two", "1.5"), by="test")["profile"]
    columns = {column["name"]: column for column in found["columns"]}
    assert [(name, column["role"]) for name, column in columns.items()] == [
        ("age", "feature"), ("sex", "feature"), ("income", "target"), ("hours_per_week", "target")
    ]  # fmt: skip
    assert found["records"] == ["4000"] * 3
    assert (
        float(columns["hours_per_week"]["quantiles"][2][1]) <= 40 <= float(columns["hours_per_week"]["quantiles"][2][2])
    )
    share = [float(each) for each in columns["income"]["shares"][1]]
    assert share[1] - 0.02 <= 0.24 <= share[2] + 0.02  # nearly; what the intervals hold is measured elsewhere


def test_whatever_is_changed_in_the_statement_is_found(home):
    body = job.measure(home, ProfileRequest("two", "1"), by="test")
    envelope, proof, found = PROFILE.open(home, body["job"])
    text, signer = proof.decode(), home.keys.signer("issuer")
    assert PROFILE.is_in(envelope)
    assert PROFILE.verify(envelope, text, home.trust).sha256 == home.ledger.dataset("two").registration.schema
    for path, value, problem in (
        (("columns", 0, "counts", 3), 7, "figures: columns"),
        (("columns", 0, "mean", 0), "1", "figures: columns"),
        (("columns", 1, "shares", 0, 2), "0.123", "figures: columns"),
        (("columns", 1, "values", 0), "Female", "columns"),
        (("records", 0), "3999", "figures: records"),
        (("variance",), "1", "figures: variance"),
        (("levels", 0), "0.1", "figures: levels"),
        (("method",), "by eye", "method"),
    ):
        forged = json.loads(dsse.parse(envelope).payload)
        part = forged["predicate"]
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
        payload = canonical.encode(forged, 1 << 19)
        with pytest.raises(CertificateInvalid, match="its statement is not"):  # a stolen key alone mints none
            PROFILE.verify(dsse.sign(payload, signer), text, home.trust)
        body, stated = PROFILE.read(payload)
        with pytest.raises(CertificateInvalid, match=problem):
            check(Stated(body, stated.predicate, "two", "", Decimal(1), Decimal(0), 0, PROFILE.rule))
    check(found)


def test_what_cannot_be_counted_is_refused_before_it_costs(home, monkeypatch):
    for wrong, problem in (
        ({"part": "test"}, "must be holdout or training"),
        ({"dataset": "two", "part": HOLDOUT}, "no rows of this family are kept aside"),
        ({"columns": ("age", "height")}, r"\['height'\]: are not in"),
        ({"pairs": (("age", "age"),)}, "two different columns"),
        ({"columns": ("age",), "pairs": (("age", "sex"),)}, "two different columns"),
        ({"pairs": (("age", "sex"), ("sex", "age"))}, "each once"),
        ({"epsilon": "0"}, "epsilon"),
        ({"epsilon": "0.000000001"}, "would be off by|too small"),
        ({"delta": "0.1"}, "below 1/records"),
        ({"delta": "0.0001"}, "in all"),
    ):
        with pytest.raises(InputError, match=problem):
            profile.plan(home, ProfileRequest(**({"dataset": "adult", "epsilon": "0.1"} | wrong)))
    with pytest.raises(UnknownName):
        profile.plan(home, ProfileRequest("nobody", "0.1"))
    for limit, value, problem in (
        ("MOST_CELLS", 100, "at most 100"),
        ("STATEMENT_LIMIT", 9000, "one signed statement"),
    ):
        monkeypatch.setattr(profile, limit, value)
        with pytest.raises(InputError, match=problem):
            profile.plan(home, ProfileRequest("adult", "0.1"))
        monkeypatch.undo()
    assert (spent(home), spent(home, "two")) == ("0", "0")


def test_with_the_budget_gone_it_says_what_would_fit(home):
    job.measure(home, ProfileRequest("adult", "1.6"), by="test")
    with pytest.raises(BudgetRefused) as refused:
        profile.plan(home, ProfileRequest("adult", "1.5"))
    fits = refused.value.details["would_fit"]["epsilon"]
    assert 0 < Decimal(fits) < Decimal("1.5")
    job.measure(home, ProfileRequest("adult", fits), by="test")
    assert profile.plan(home, ProfileRequest("adult", "1.6")).known is not None  # what was counted is given, also then


def test_a_cut_after_the_commit_is_gone_on_with_and_changed_counts_are_not_signed(home, monkeypatch):
    reserved = job.submit(home, ProfileRequest("two", "0.5"), by="test")

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stated_steps, "sign", cut)
        with pytest.raises(KeyboardInterrupt):
            job.run(home, reserved.seq)
    path = home.jobs / str(reserved.seq) / stated_steps.COUNTS
    kept = path.read_text()
    path.write_text(kept.replace("[", "[1", 1))
    with pytest.raises(LedgerInvalid, match="not what was committed"):
        steps_of(home, reserved.seq).finish()
    path.write_text(kept)
    with pytest.raises(WrongState, match="profiles a dataset"):
        home.ledger.issue(reserved.seq, ledgers.hexes("statement"), ledgers.hexes("model"))
    assert job.recover(home)["finished"] == [reserved.seq]
    stated = PROFILE.open(home, reserved.seq)[2].form
    assert [count for column in stated.columns for count in column.counts] == json.loads(kept)


def test_the_auditor_refuses_what_the_ledger_would(home):
    job.measure(home, ProfileRequest("adult", "0.5", part=HOLDOUT), by="test")
    log = home.ledger.log
    bodies = [log.entry(number).value for number in range(log.size())]

    def read(at, change) -> None:
        replay = Replay(home.trust)
        for number, value in enumerate(bodies):
            replay.read(number, canonical.encode({**value, **(change if number == at else {})}))

    kinds = [value["type"] for value in bodies]
    read(-1, {})
    for kind, change, problem in (
        ("reserved", {"model": "adult"}, "makes none"),
        ("reserved", {"profile": False}, "must be true"),
        ("reserved", {"target": "income"}, "does not go with"),
        ("reserved", {"bound": 5}, "no profile"),
        ("reserved", {"dataset": "two"}, "part|kept aside"),
        ("profiled", {"dataset": "two"}, "must be adult"),
        ("profiled", {"reservation": 0}, "no such job"),
        (
            "profiled",
            {"type": "evaluated", "model": ledgers.hexes("m"), "name": ""},
            "fields|another entry ends it",
        ),
        ("profiled", {"statement": "x"}, "statement"),
    ):
        with pytest.raises(LedgerInvalid, match=problem):
            read(kinds.index(kind), change)
    replay = Replay(home.trust)
    for number, value in enumerate(bodies[:-1]):
        replay.read(number, canonical.encode(value))
    issued = {**bodies[-1], "type": "issued", "model": ledgers.hexes("m"), "name": "adult"}
    del issued["dataset"]
    with pytest.raises(LedgerInvalid, match="another entry ends it"):
        replay.read(len(bodies) - 1, canonical.encode(issued))


def test_the_published_form_is_that_of_the_code(home):
    import jsonschema

    published = json.loads((ledgers.ROOT / "docs" / "profile.schema.json").read_text())
    assert published == PROFILE.json_schema()  # python -m accountant.certificates.statement_kinds profile
    body = job.measure(home, ProfileRequest("two", "0.2", pairs=(("age", "sex"),)), by="test")
    jsonschema.validate(PROFILE.open(home, body["job"])[2].statement, published)
