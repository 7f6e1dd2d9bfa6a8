"""What is left is one figure at every door: of a dataset whose first block is closed, of one whose people have a total
of their own over all blocks, and of the part that is kept aside.
"""

from __future__ import annotations

import csv
import json
import random
from decimal import Decimal

import pytest
from prometheus_client.parser import text_string_to_metric_families
from small_home import Server, dpserve, serving

from accountant.home import Home
from accountant.ledger.families.left import left
from accountant.ledger.families.records import HOLDOUT
from dpserve.client import Client

pytestmark = [pytest.mark.server, pytest.mark.slow]

ROWS = 1500
DATASETS = ("grown", "people")


def write(path, number, named):
    draw = random.Random(number)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*(["pid"] if named else []), "v", "y"])
        for row in range(ROWS):
            v = draw.uniform(0, 100)
            out.writerow([*([f"p{row}"] if named else []), f"{v:.9f}", "yes" if v > 50 else "no"])


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Server:
    """`grown`: block 1 is closed by a job of the whole total, block 2 is fresh, a fifth is kept aside. `people`: four
    blocks of total 2, one person's total is 2, three blocks were read at .9 each.
    """
    folder = tmp_path_factory.mktemp("left")
    home = folder / "home"
    schema = f"target: {{name: y, classes: ['no', 'yes']}}\nrecords: {ROWS}\nfeatures: "
    schema += "{v: {type: numeric, range: [0, 100]}}\n"
    (folder / "rows.yaml").write_text(schema)
    (folder / "people.yaml").write_text(schema + "ignore: [pid]\n")

    def run(*words):
        found = dpserve(home, *words)
        assert found.returncode == 0, found.stderr

    def registered(name, schema, *more):
        data = "--data", str(folder / f"{name}1.csv"), "--schema", str(folder / schema)
        run("dataset", "register", name, *data, "--delta", "1e-6", *more)

    run("init")
    for name, blocks in (("grown", 2), ("people", 4)):
        for number in range(1, blocks + 1):
            write(folder / f"{name}{number}.csv", 10 * blocks + number, name == "people")
    registered("grown", "rows.yaml", "--epsilon", "1", "--unit", "record", "--holdout", "0.2")
    run("train", "grown", "--learner", "ebm", "--epsilon", "1")
    run("dataset", "append", "grown", "--records", str(ROWS), "--data", str(folder / "grown2.csv"))
    whole = "--person-epsilon", "2", "--person-delta", "1e-6"
    registered("people", "people.yaml", "--epsilon", "2", "--unit", "pid", *whole)
    for number in (2, 3, 4):
        run("dataset", "append", "people", "--records", str(ROWS), "--data", str(folder / f"people{number}.csv"))
    for number in (1, 2, 3):
        run("train", "people", "--learner", "ebm", "--epsilon", "0.9", "--blocks", str(number))
    with serving(home, workers=1) as found:
        yield found


def said(server, *words):
    found = dpserve(server.path, *words, "--json")
    return found.returncode, json.loads(found.stdout)


def page(server, path):
    answer = server.ask("GET", path, None, headers={"Cookie": f"dpserve={server.tokens['admin']}"})
    assert answer.status_code == 200, answer.text
    return answer


def figure(told):
    """Share and largest job, as JSON tells them."""
    return told["share"], told["one_job"] and told["one_job"]["epsilon"]


def test_the_ledger_says_what_binds(server):
    grown, people = (left(server.home.ledger.dataset(name)) for name in DATASETS)
    assert (grown.share, grown.job.epsilon, grown.binding.words, grown.window) == (1.0, 1, "block 2", (2, 2))
    assert (people.binding.words, people.window) == ("one person's total", (4, 4))
    assert people.job.epsilon < Decimal("0.9")


@pytest.mark.parametrize("name", DATASETS)
def test_every_door_tells_the_same(server, name):
    now = left(server.home.ledger.dataset(name))
    share, epsilon = f"{now.share:.6f}", str(now.job.epsilon.normalize())
    listed = one(page(server, "/ui/datasets?form=json").json()["families"], name, "family")
    told = {
        "show": figure(said(server, "dataset", "show", name)[1]["budget"]["left"]),
        "list": figure(one(said(server, "dataset", "list")[1]["datasets"], name)["budget"]["left"]),
        "/v1/datasets/{name}": figure(server.get(f"/v1/datasets/{name}").json()["budget"]["left"]),
        "/v1/datasets": figure(one(server.get("/v1/datasets").json()["datasets"], name)["budget"]["left"]),
        "/v1/families": figure(one(server.get("/v1/families").json()["families"], name)["budget"]["left"]),
        "/ui/datasets": (listed["left"], listed["one_job"]),
    }
    assert told == dict.fromkeys(told, (share, epsilon))
    budget = Client(f"http://127.0.0.1:{server.port}", server.tokens["admin"]).dataset(name).budget
    assert (budget.one_job, budget.window, budget.bound_by) == (now.job.epsilon, now.window, now.binding.words)
    for path in (f"/ui/datasets/{name}", "/ui/datasets", "/ui", f"/ui/jobs/new?dataset={name}"):
        shown = page(server, path).text
        assert f"up to ε {epsilon}" in shown, path
        assert "Used up" not in shown, path
    text = dpserve(server.path, "dataset", "list").stdout
    assert f"Room for one more job: up to epsilon {epsilon}" in text


def one(lines, name, key="name"):
    return next(line for line in lines if line[key] == name)


def test_metrics_tell_the_same_and_do_not_grow_with_the_blocks(server):
    text = server.get("/metrics", scope="audit").text
    samples = [each for metric in text_string_to_metric_families(text) for each in metric.samples]
    found = {(each.name, *sorted(each.labels.items())): each.value for each in samples}
    for name in DATASETS:
        now = left(server.home.ledger.dataset(name))
        for ratio, job, label in (
            ("dpserve_budget_left_ratio", "dpserve_epsilon_one_job", ("dataset", name)),
            ("dpserve_family_left_ratio", "dpserve_family_epsilon_one_job", ("family", name)),
        ):
            assert found[ratio, label] == pytest.approx(now.share)
            assert found[job, label] == float(now.job.epsilon)
        binds = [dict(key[1:]) for key in found if key[0] == "dpserve_budget_binding" and ("dataset", name) in key]
        assert {each["account"] for each in binds} == {now.binding.kind}
        newest, both = (
            found["dpserve_blocks_left_ratio", ("dataset", name), ("window", window)] for window in ("newest", "all")
        )
        assert newest == pytest.approx(now.share)
        assert both == (0 if name == "grown" else pytest.approx(now.share))
        assert sum(key[0].startswith("dpserve_blocks_") and ("dataset", name) in key for key in found) == 4
    assert found["dpserve_person_left_ratio", ("dataset", "people")] == pytest.approx(
        left(server.home.ledger.dataset("people")).share
    )
    aside = left(server.home.ledger.dataset("grown", part=HOLDOUT), Decimal(0))
    assert found["dpserve_holdout_left_ratio", ("dataset", "grown")] == aside.share == 1
    assert found["dpserve_holdout_epsilon_one_job", ("dataset", "grown")] == float(aside.job.epsilon)
    shown = page(server, "/ui/datasets/grown").text
    assert f"oom for one more evaluation: up to ε {aside.job.epsilon.normalize()}" in shown
    kept = server.get("/v1/datasets/grown").json()["holdout"]["budget"]["left"]
    assert figure(kept) == (f"{aside.share:.6f}", str(aside.job.epsilon.normalize()))


@pytest.mark.parametrize("name", DATASETS)
def test_a_plan_of_so_much_is_admitted_and_of_more_is_not(server, name):
    now = left(server.home.ledger.dataset(name))
    job = ("plan", name, "--learner", "ebm", "--blocks", str(now.window[1]), "--epsilon")
    code, found = said(server, *job, str(now.job.epsilon))
    assert code == 0
    assert Decimal(found["epsilon"]) <= now.job.epsilon
    code, found = said(server, *job, str(now.job.epsilon + Decimal("0.02")))
    assert code == 3
    assert figure(found["error"]["details"]["left"]) == figure(now.to_json())


def test_jobs_left_and_the_forecast_are_of_that_block(server):
    body = server.get("/v1/datasets/grown").json()
    assert body["budget"]["jobs_left"]["ebm"] > 0
    assert (body["forecast"]["days_left"], body["budget"]["closed_by"]) == (None, None)
    shown = dpserve(server.path, "dataset", "show", "grown").stdout
    assert "block 2: 0 % of the budget used. Room for one more job: up to epsilon 1" in shown
    assert "blocks 1-2 together: 100 % of the budget used. No further job fits (block 1, closed by job" in shown
    assert "nothing is admitted" not in shown


def test_what_a_job_says_is_left_is_under_the_quota_of_who_asked(server):
    """As the plan that they were shown."""
    home = Home.open({"DPSERVE_HOME": str(server.path)})
    home.ledger.set_quota("people", "*", Decimal("0.9"), "a test", "steward")
    job = ("people", "--learner", "ebm", "--epsilon", "0.3", "--blocks", "4")
    planned = said(server, "plan", *job)[1]["left"]
    assert planned["binding"]["account"] == "quota"
    done = said(server, "train", *job)[1]
    assert figure(done["left"]) == figure(planned)
    assert figure(server.get(f"/v1/jobs/{done['job']}").json()["left"]) == figure(planned)
