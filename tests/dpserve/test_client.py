"""`dpserve.client` against a real server, and against a transport that fails as networks and servers do."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
from notebooks import play
from pages import blocks
from small_home import ROOT, adult_home, environment, records, serving, until

from accountant.ledger.families.dataset_sets import dataset_names
from dpserve import Client, ServiceError
from dpserve import errors as refused
from dpserve.curves import curves_of
from dpserve.types import Explanation
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.server

FEW = {"rounds": 5}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    home = adult_home(folder, 4)
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters=FEW), by="test")
    job.train(home, JobRequest("adult", "ebm", "0.5", parameters={"epochs": 2}, model="curves"), by="test")
    with serving(home.path, workers=1) as found:
        yield found


@pytest.fixture
def service(server):
    with client(server, "admin") as found:
        yield found


def client(server, scope):
    return Client(f"http://127.0.0.1:{server.port}", server.tokens[scope])


def test_the_notebook_of_the_client_runs(server, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("DPSERVE_TOKEN", server.tokens["admin"])
    *_, frame, curves, account, budget, _ = play("client")
    said = capsys.readouterr().out
    assert set(frame) == {"label", "p_<=50K", "p_>50K"}
    assert all(sum(pair) == pytest.approx(1) for pair in zip(frame["p_<=50K"], frame["p_>50K"], strict=True))
    assert "costs epsilon 0.2" in said
    assert "notebook is certified by entry" in said
    assert "would fit" in said
    assert "weighs most" in said
    heaviest = next(iter(curves.importance()))
    for shown, words in ((curves, f">{heaviest}</text>"), (account, "what adds to it"), (budget, "one more job")):
        drawn = ElementTree.fromstring(shown._repr_html_())  # well formed, whatever a name holds
        assert drawn.tag.endswith("svg")
        assert words in shown._repr_html_()


@pytest.mark.parametrize("model", ["curves", "adult"])
def test_curves_are_what_every_record_is_told(service, model):
    """Of each feature, the bin that a record falls into adds what the record's own account says."""
    found, given = service.explain(model), records(40)
    told = service.explain(model, given).columns()
    described = {each["name"]: each for each in service.model(model)["features"]}
    assert found.bins.keys() == described.keys()
    for name, bins in found.bins.items():
        for record, adds in zip(given, told[name], strict=True):
            if described[name]["type"] == "numeric":
                (mine,) = [each for each in bins[:-1] if each.value >= record[name]][:1] or [bins[-2]]
            else:
                mine = next((each for each in bins if each.value == record[name]), bins[-2])
            assert mine.adds == (pytest.approx(adds),), (name, record[name])
    frame, sizes = found.columns(), found.importance()
    assert {len(column) for column in frame.values()} == {sum(map(len, found.bins.values()))}
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    assert sizes.keys() == described.keys()


def test_curves_of_dates_and_of_several_classes():
    """As a service describes them: a bin is asked for by its last day or second, and drawn for each class."""
    features = [
        {"name": "day", "type": "date", "edges": [0.0, 31.0]},
        {"name": "at", "type": "time", "edges": [3600.5]},
        {"name": "moment", "type": "datetime", "edges": [86400.0]},
        {"name": "b<&", "type": "boolean"},
        {"name": "text", "type": "categorical", "values": ["other", "x"]},
    ]
    asked = []

    def explain(sent):
        asked.extend(sent)
        body = {"model": "m@1", "unit": "logits", "base": [0, 0, 0], "features": [each["name"] for each in features]}
        lines = [[[n, -n, 1] for n in range(len(features))] for _ in sent]
        return Explanation.of(
            {**body, "contributions": lines, "predictions": ["v"] * len(sent), "classes": list("uvw")}
        )

    found = curves_of({"features": features, "classes": list("uvw")}, explain)
    said = [next((value for value in each.values() if value is not None), None) for each in asked]
    assert said[:7] == ["1970-01-01", "1970-02-01", "1970-03-04", None, "01:00:00", "01:00:01", None]
    assert said[7:] == [
        "1970-01-02T00:00:00",
        "1970-01-02T00:00:01",
        None,
        False,
        True,
        None,
        "other",
        "x",
        "other_",
        None,
    ]
    assert set(found.columns()) == {"feature", "value", "adds_u", "adds_v", "adds_w"}
    assert ElementTree.fromstring(found.svg()).tag.endswith("svg")
    assert ElementTree.fromstring(explain([{}])._repr_html_()).tag.endswith("svg")


def test_from_a_budget_to_predictions(server):
    with client(server, "train") as analyst:
        before = analyst.dataset("adult").budget
        assert [each.name for each in analyst.datasets()] == dataset_names(server.home.ledger.log.database)
        plan = analyst.plan("adult", "lazybb", "0.1", parameters=FEW, model="mine")
        seen = []
        made = analyst.train("adult", "lazybb", 0.1, parameters=FEW, model="mine", progress=lambda *n: seen.append(n))
        after = analyst.dataset("adult").budget
    assert (made.state, made.done, made.model, made.dataset) == ("issued", made.total, "mine", "adult")
    assert seen[-1] == (made.total, made.total)
    assert made.epsilon == plan.epsilon <= Decimal("0.1")
    assert (after.share_left, after.one_job) == (plan.share_left, plan.one_job) == (made.share_left, made.one_job)
    assert after.room == plan.room == made.room
    assert f" % of the budget used. Room for one more job: up to epsilon {after.one_job}" in after.room
    assert after.spent > before.spent
    assert before.jobs_left["lazybb"] >= after.jobs_left["lazybb"]
    with client(server, "predict") as shop:
        until(lambda: "mine@1" in [model.reference for model in shop.models()], "it is served")
        rows = records(5)
        answer = shop.predict("mine", rows)
        assert (answer.model, len(answer.labels), len(answer.probabilities)) == ("mine@1", 5, 5)
        assert answer.raw == server.post("/predict", {"model": "mine", "records": rows}).json()
        assert shop.model("mine@champion")["certificate"]["entry"] == made.entry
        assert shop.certificate("mine")["statement"]["predicate"]


def test_scalars_of_numpy_are_numbers(service):
    (row,) = records(1)
    same = {name: np.int64(value) if isinstance(value, int) else value for name, value in row.items()}
    assert service.predict("adult", [same]).raw == service.predict("adult", [row]).raw


def test_explanation_adds_up(server, service):
    found = service.explain("curves", records(3))
    assert len(found.contributions) == 3
    assert len(found.features) == len(found.contributions[0])
    odds = [found.base + sum(line) for line in found.contributions]
    chances = [line[1] for line in service.predict("curves", records(3)).probabilities]
    assert found.unit.startswith("score of ")
    name, version = found.model.split("@")
    told = json.loads((server.home.path / "models" / name / version / "ensemble.json").read_bytes())
    logits = [np.sign(each) * bent(abs(each), each > 0, told["link"], told["bends"]) for each in odds]
    assert [1 / (1 + np.exp(-each)) for each in logits] == pytest.approx(chances, abs=1e-5)


def bent(odds, above, link, bends):
    """What log odds of one sign are once they bend: beyond each bend a point of score is worth its slope."""
    side = sorted((abs(score), slope) for score, slope in bends if (score > 0) == above)
    ends = [score for score, _ in side] + [np.inf]
    steps = [(0, link), *side]
    return sum(slope * max(0, min(odds / link, end) - start) for (start, slope), end in zip(steps, ends, strict=True))


def test_jobs_and_ledger_over_several_pages(server, service):
    until(lambda: all(each.over for each in service.jobs()), "jobs of other tests write no more")
    numbers = [each.number for each in service.jobs()]
    assert numbers == sorted(numbers, reverse=True)
    assert service.job(numbers[-1]).over
    assert list(service.jobs(dataset="adult", state="burned")) == []
    entries = list(service.ledger())
    assert [entry.index for entry in entries] == list(range(server.home.ledger.log.size()))
    assert json.loads(entries[0].text)["type"] == "genesis"
    assert service.checkpoint().splitlines()[1] == str(len(entries))
    assert service.proof(1)["leaf"] == 1


def test_a_model_is_kept_from_serving_and_served_again(service):
    def state():
        return {model.reference: model.state for model in service.models()}["curves@1"]

    placed = service.retire("curves@1", "a test")
    assert placed["retired"] == [1]
    until(lambda: state() == "retired", "it is served no more")
    service.restore("curves@1", "a test")
    until(lambda: state() == "champion", "it is served again")
    with pytest.raises(refused.BadInput):
        service.promote("curves", 9, "there is none")


def test_a_grant_is_made_looked_at_and_ended(server, service):
    made = service.add_grant("team-c", "train", {"dataset": "adult"}, expires="2099-01-31")
    assert service.add_grant("team-c", "train", {"dataset": "adult"}, expires="2099-01-31") == made
    assert (made["on"], made["expires"], made["revoked"]) == ({"dataset": "adult"}, "2099-01-31T00:00:00Z", None)
    assert service.list_grants(principal="team-c") == {"grants": [made], "next": None}
    assert service.show_grant(made["grant"])["stops"] == {"tokens": [], "still": None, "jobs": []}
    ended = service.revoke_grant(made["grant"], "a test")
    assert server.home.ledger.log.entry(ended["revoked"]).value["reason"] == "a test"
    assert service.revoke_grant(made["grant"], "again") == ended
    with client(server, "train") as analyst, pytest.raises(refused.NotAllowed):
        analyst.list_grants()


def test_an_audit_is_asked_for_and_waited_for(service):
    size = int(service.checkpoint().splitlines()[1])
    found = service.audit(120)
    assert (found["ok"], found["problems"]) == (True, [])
    assert found["entries"] >= size
    assert service.last_audit()["at"] >= found["at"]


def test_submitting_twice_with_a_key_is_one_job(service):
    one, two = (
        service.submit("adult", "lazybb", "0.05", parameters=FEW, idempotency_key="mine").number for _ in range(2)
    )
    assert one == two
    assert service.submit("adult", "lazybb", "0.05", parameters=FEW).number != one
    assert service.wait(one).state == "issued"


def test_cancel_and_wait_for_what_was_cancelled(server, service):
    held = job.submit(server.home, JobRequest("adult", "lazybb", "0.1", parameters=FEW), by="test", queued=False).seq
    assert service.cancel(held).state == "released"
    with pytest.raises(refused.JobFailed, match="nothing was spent") as caught:
        service.wait(held)
    assert (caught.value.code, caught.value.details) == ("job_released", {"job": held})
    with pytest.raises(refused.BadInput) as twice:
        service.cancel(held)
    assert (twice.value.status, twice.value.code) == (409, "wrong_state")


def test_what_is_refused(server, service):
    with pytest.raises(refused.BudgetRefused) as caught:
        service.submit("adult", "lazybb", 50)
    assert service.plan("adult", "lazybb", caught.value.would_fit).epsilon <= caught.value.would_fit
    for call in (
        lambda: service.job(999),
        lambda: service.dataset("no/such name"),
        lambda: service.dataset(".."),
        lambda: service.model("../keys"),
        lambda: service.plan("adult", "nope", 1),
    ):
        with pytest.raises(refused.UnknownName):
            call()
    for wrong, says in (
        (lambda: service.model(None), "is no name"),
        (lambda: service.job("nope"), "number='nope': must be a whole number"),
        (lambda: service.predict("adult", [{**records(1)[0], "age": float("nan")}]), "None says"),
        (lambda: Client(token="dps_\u00e9"), "token: must be what"),
        (lambda: Client(token="dps_x\ny"), "token: must be what"),
    ):
        with pytest.raises(ValueError, match=says):
            wrong()
    with Client(f"http://127.0.0.1:{server.port}", f"{server.tokens['admin']}\n") as of_a_file:
        assert of_a_file.models()
    with pytest.raises(refused.BadInput, match="age"):
        service.predict("adult", [{**records(1)[0], "age": "old"}])
    with pytest.raises(refused.BadInput) as trees:
        service.explain("nope", records(1))
    assert trees.value.status == 404
    with client(server, "predict") as shop, pytest.raises(refused.NotAllowed) as scope:
        shop.submit("adult", "lazybb", "0.1")
    assert (scope.value.status, scope.value.code) == (403, "forbidden")
    with Client(f"http://127.0.0.1:{server.port}", "dps_x") as stranger, pytest.raises(refused.NotAllowed):
        stranger.models()


def test_url_and_token_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("DPSERVE_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("DPSERVE_TOKEN", server.tokens["audit"])
    with Client() as found:
        assert found.ready(5)
        assert found.checkpoint()


# What networks and servers do


JOB = {
    "job": 7, "state": "reserved", "progress": {"done": 0, "total": 5}, "dataset": "adult", "learner": "lazybb",
    "model": "adult", "epsilon": "0.5", "delta": "0.00001", "left": {"share": "0.5"}, "certificate": None,
    "error": None,
}  # fmt: skip


class Failing:
    """Answers one after another; an exception is raised, and what was asked is kept."""

    def __init__(self, monkeypatch, *answers):
        self.answers, self.asked, self.waits = list(answers), [], []
        monkeypatch.setattr("time.sleep", self.waits.append)

    def __call__(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **more):
        return Client("http://x", "dps_x", transport=httpx.MockTransport(self), **more)


def error(status, code="not_ready", **headers):
    return httpx.Response(status, json={"error": {"code": code, "message": "x", "details": {}}}, headers=headers)


def event(state, done=0, placing=False):
    body = {**JOB, "state": state, "progress": {"done": done, "total": 5}, "version": None if placing else 2}
    kind = "end" if state in ("issued", "burned") and not placing else "job"
    return f"id: {state}:{done}\nevent: {kind}\ndata: {json.dumps(body)}\n\n"


def test_a_job_is_waited_for_until_its_model_has_its_place(monkeypatch):
    stream = httpx.Response(200, text=event("issued", 5, placing=True) + event("issued", 5))
    assert Failing(monkeypatch, stream).client().wait(7).version == "adult@2"


def test_a_submission_is_tried_again_with_the_same_key(monkeypatch):
    answers = (httpx.ConnectError("x"), error(503), httpx.ReadTimeout("x"), error(429), error(504, "timeout"))
    failing = Failing(monkeypatch, *answers, httpx.Response(202, json=JOB))
    assert failing.client().submit("adult", "lazybb", Decimal("0.5")).number == 7
    keys = {json.loads(request.content)["idempotency_key"] for request in failing.asked}
    assert (len(failing.asked), len(keys)) == (6, 1)
    assert failing.waits == sorted(failing.waits)


def test_retry_after_is_obeyed(monkeypatch):
    failing = Failing(monkeypatch, error(429, **{"Retry-After": "7"}), httpx.Response(200, json={"models": []}))
    assert failing.client().models() == []
    assert failing.waits == [7.0]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(503), refused.Unavailable),
        (httpx.ConnectError("x"), refused.Unavailable),
        (httpx.Response(502, text="<html>"), refused.Unavailable),
        (error(429, "too_many_requests"), refused.TooManyRequests),
    ],
)
def test_retries_end(monkeypatch, answer, kind):
    failing = Failing(monkeypatch, *[answer] * 3)
    with pytest.raises(kind) as caught:
        failing.client(retries=2).datasets()
    assert isinstance(caught.value, ServiceError)
    assert (len(failing.asked), len(failing.waits)) == (3, 2)


@pytest.mark.parametrize(
    "answer",
    [error(400), error(401), error(403), error(404), error(409), error(422), error(500), error(503, "model_invalid")],
)
def test_what_no_asking_mends_is_asked_once(monkeypatch, answer):
    failing = Failing(monkeypatch, answer)
    with pytest.raises(ServiceError):
        failing.client().predict("adult", [])
    assert (len(failing.asked), failing.waits) == (1, [])


def test_cancelling_is_not_tried_again(monkeypatch):
    """A second one would be told that the first had been done."""
    failing = Failing(monkeypatch, httpx.ReadTimeout("x"))
    with pytest.raises(refused.Unavailable):
        failing.client().cancel(7)
    assert len(failing.asked) == 1


def test_a_stream_that_is_cut_is_taken_up_where_it_was(monkeypatch):
    cut = httpx.Response(200, text="retry: 1000\n\n" + event("reserved") + ": still here\n\n" + event("started", 2))
    failing = Failing(monkeypatch, cut, httpx.ConnectError("x"), error(503), httpx.Response(200, text=event("issued")))
    states = [(job.state, job.done) for job in failing.client().events(7)]
    assert states == [("reserved", 0), ("started", 2), ("issued", 0)]
    assert [request.headers.get("last-event-id") for request in failing.asked] == [None] + ["started:2"] * 3


def test_an_audit_that_never_comes(monkeypatch):
    asked = httpx.Response(202, json={"asked": "2026-01-01T00:00:00Z"})
    before = httpx.Response(200, json={"at": "2025-01-01T00:00:00Z"})
    failing = Failing(monkeypatch, asked, error(404, "unknown_name"), *[before] * 50)
    clock = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    with pytest.raises(refused.Unavailable, match="no audit was made"):
        failing.client().audit(5)
    assert len(failing.asked) > 2


def test_a_stream_of_nothing_is_given_up(monkeypatch):
    failing = Failing(monkeypatch, error(503), error(503), error(503))
    with pytest.raises(refused.Unavailable):
        list(failing.client(retries=2).events(7))
    assert len(failing.asked) == 3


def test_numbers_that_are_none_are_not_sent(monkeypatch):
    failing = Failing(monkeypatch)
    with pytest.raises(ValueError, match="JSON"):
        failing.client().predict("adult", [{"age": float("nan")}])
    with pytest.raises(TypeError, match="object"):
        failing.client().predict("adult", [{"age": object()}])
    assert failing.asked == []


def test_it_needs_none_of_the_rooms():
    code = "import sys, dpserve.client; print([m for m in sys.modules if m.split('.')[0] in %r])"
    rooms = ("accountant", "models", "training", "serving", "numpy", "bentoml", "starlette")
    done = subprocess.run([sys.executable, "-c", code % (rooms,)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# The pages


PAGE = "docs/reference/clients.md"


def test_every_snippet_of_the_clients_page_runs(server, tmp_path):
    code = "\n".join(blocks(PAGE, "python", "In Python"))
    assert code.count("service.") > 10
    done = on_a_shell([sys.executable, "-c", code], server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "is certified by entry" in done.stdout
    assert "would fit: " in done.stdout
    assert (tmp_path / "dpserve.checkpoint").read_text().startswith("dpserve/")


@pytest.mark.system("curl", "jq")
def test_every_command_of_the_curl_page_runs(server, tmp_path):
    script = "set -eu\n" + "\n".join(blocks(PAGE, "sh", "With curl")[:-1])
    assert script.count("curl ") > 12
    script = script.replace("http://127.0.0.1:3000", f"http://127.0.0.1:{server.port}")
    done = on_a_shell(["bash", "-o", "pipefail", "-c", script], server, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "event: end" in done.stdout
    assert "409" in done.stdout
    assert "dps_" not in script


@pytest.mark.system("curl", "jq")
def test_a_dataset_is_registered_as_the_page_of_the_dashboard_does_over_rest(server, tmp_path):
    rows = [f"p{row // 2},{20 + row % 60},{'yes' if row % 3 else 'no'}" for row in range(400)]
    (tmp_path / "visits.csv").write_text("\n".join(["patient,age,again", *rows, ""]))
    schema = 'target: {name: again, classes: ["no", "yes"]}\nrecords: 400\nignore: [patient]\n'
    (tmp_path / "visits.yaml").write_text(schema + "features: {age: {type: numeric, range: [0, 100]}}\n")
    (script,) = blocks(PAGE, "sh", "Register a dataset")
    (tmp_path / "auth").write_text(f"Authorization: Bearer {server.tokens['admin']}\n")
    whole = f"set -eu\nURL=http://127.0.0.1:{server.port}\n{script}"
    done = on_a_shell(["bash", "-o", "pipefail", "-c", whole], server, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with client(server, "admin") as service:
        assert service.dataset("visits").budget.share_left == 1


def on_a_shell(command, server, folder):
    own = {"DPSERVE_URL": f"http://127.0.0.1:{server.port}", "DPSERVE_TOKEN": server.tokens["admin"]}
    variables = {**environment(server.path), **own}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120)
