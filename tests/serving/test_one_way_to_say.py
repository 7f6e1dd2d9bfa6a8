"""Every door says what is left in the words of one function, and under the quota of who asks: over random histories of
jobs and of those given back, quotas, changed totals, families, blocks, the part kept aside, with delta and without.
"""

from __future__ import annotations

import html
import random
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import ledgers
import pytest
from in_process import Site
from prometheus_client.parser import text_string_to_metric_families

from accountant.access.tokens import tokens
from accountant.home import Home
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.left import Left, left, left_words
from accountant.ledger.families.records import HOLDOUT
from accountant.ledger.job_counts import JobFigures
from dpserve import types
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.privacy.budget import percent_words, used_words
from dpserve_verify.privacy.events import BoundedRange, Gaussian, PureDp
from serving.app import DOORS
from serving.cli.app import run
from serving.cli.backends.user import this_user
from serving.pages.all import PAGES
from serving.process.watch.metrics import LedgerGauges, render

pytestmark = pytest.mark.slow

ROWS = 600
SCHEMA = f"""target: {{name: y, classes: ['no', 'yes']}}
records: {ROWS}
ignore: [pid]
features: {{v: {{type: numeric, range: [0, 100], bins: 8}}}}
"""
KINDS = ("plain", "pure", "copies", "grown", "people")
"""A total with a part kept aside; one without delta; two datasets in a family; blocks; blocks and a person's total."""


def rows(path: Path, number: int) -> str:
    draw = random.Random(number)
    lines = [f"p{number}-{row},{(v := draw.uniform(0, 100)):.6f},{'yes' if v > 50 else 'no'}" for row in range(ROWS)]
    path.write_text("pid,v,y\n" + "\n".join(lines) + "\n")
    return str(path)


def dpserve(*words: str) -> None:
    assert run([*words]) == 0, words


@pytest.fixture(scope="module")
def homes(tmp_path_factory) -> dict[str, Path]:
    """A home of each kind, with a dataset `d`, before any job."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "schema.yaml").write_text(SCHEMA)
    made = {}
    for at, kind in enumerate(KINDS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPSERVE_HOME", str(folder / kind))
            made[kind] = folder / kind
            delta = "0" if kind == "pure" else "1e-6"
            budget = ["--epsilon", "1.5", "--delta", delta, "--unit", "pid"]
            more = {"people": ["--person-epsilon", "2", "--person-delta", "1e-6"]}.get(kind, ["--holdout", "0.3"])
            schema = ["--schema", str(folder / "schema.yaml")]
            dpserve("init")
            first = rows(folder / f"{kind}.csv", 10 * at)
            dpserve("dataset", "register", "d", "--data", first, *schema, *budget, *more)
            if kind == "copies":
                fewer = folder / "fewer.csv"
                fewer.write_text("".join(Path(first).read_text().splitlines(keepends=True)[:500]))
                dpserve("dataset", "register", "e", "--data", str(fewer), *schema, "--family", "d", "--unit", "pid")
            for number in (1, 2) if kind in ("grown", "people") else ():
                dpserve(
                    "dataset",
                    "append",
                    "d",
                    "--records",
                    str(ROWS),
                    "--data",
                    rows(folder / f"{kind}{number}.csv", 10 * at + number),
                )
    return made


def spend(home: Home, draw: random.Random, askers: list[str]) -> None:
    """Do one thing that changes what is left; what does not fit is refused."""
    name = draw.choice([dataset.registration.name for dataset in home.ledger.datasets()])
    dataset = home.ledger.dataset(name)
    part = HOLDOUT if dataset.holdout is not None and draw.random() < 0.25 else None
    blocks = None if dataset.last is None else draw.choice(["all", "last:1", "1", "2-3"])
    what = draw.choice([ledgers.plan(PureDp(Decimal("0.02")), 4), ledgers.plan(BoundedRange(Decimal("0.05")), 9)])
    what = ledgers.plan(Gaussian(Decimal(draw.choice([4, 8]))), 1) if dataset.delta and draw.random() < 0.4 else what
    wanted = replace(
        ledgers.request(name, "1.5", str(dataset.delta)), blocks=blocks, part=part, model=f"m{draw.randrange(10**9)}"
    )
    if part is not None:  # which is measured, and never learned from
        wanted = replace(wanted, kind=Profile(), model="")
    match draw.randrange(8):
        case 0:
            share = Decimal(draw.choice(["0.1", "0.5", "1"]))
            home.ledger.set_quota(name, draw.choice([*askers, "*"]), share, "a test", "steward")
        case 1 if dataset.person is None:
            home.ledger.change_budget(name, Decimal(draw.choice(["1.2", "2.5"])), "a test", "steward")
        case _:
            with suppress(BudgetRefused):
                job = ledgers.reserve(home.ledger, wanted, what, by=draw.choice(askers))
                if draw.random() < 0.3:
                    home.ledger.release(job.seq)


def words_of(told: Left) -> str:
    return left_words(told.to_json())


def shown(text: str) -> str:
    """What a page or a terminal says, with the blanks of its layout made one, and epsilon as in the terminal."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("ε", "epsilon").replace("δ", "delta").split())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_every_door_says_the_same(homes, tmp_path, monkeypatch, capsys, kind, seed):
    shutil.copytree(homes[kind], tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    home, draw = Home.open({"DPSERVE_HOME": str(tmp_path / "home")}), random.Random(f"{kind} {seed}")
    site = Site(home, [*DOORS, *PAGES])
    secret = site.token("asker", "train", "steward")
    token = next(line.principal for line in tokens(home.ledger) if line.name == "asker")
    for _ in range(7):
        spend(home, draw, [this_user(), token])
    site.look()
    for dataset in home.ledger.datasets():
        name = dataset.registration.name
        check_the_terminal(home, name, capsys)
        check_the_service(site, secret, token, name)
        window = None if dataset.last is None else "last:1"
        check_a_job(site, secret, token, name, window)
    metrics = text_string_to_metric_families(render([LedgerGauges(home, JobFigures())]).decode())
    gauges = {(line.name, *sorted(line.labels.items())): line.value for each in metrics for line in each.samples}
    for dataset in home.ledger.datasets():
        now, label = left(dataset), ("dataset", dataset.registration.name)
        assert gauges["dpserve_budget_left_ratio", label] == pytest.approx(now.share)
        assert gauges["dpserve_epsilon_one_job", label] == float(now.job.epsilon)


def check_the_terminal(home: Home, name: str, capsys) -> None:
    """What the user of the command line reads is under that user's quota."""
    dataset = home.ledger.dataset(name, this_user())
    now = left(dataset)
    capsys.readouterr()
    dpserve("dataset", "show", name)
    text = shown(capsys.readouterr().out)
    assert words_of(now) in text
    if dataset.holdout is not None:
        aside = left(home.ledger.dataset(name, this_user(), HOLDOUT), Decimal(0))
        assert left_words(aside.to_json(), "evaluation") in text
    dpserve("dataset", "list")
    assert words_of(now) in shown(capsys.readouterr().out)


def check_the_service(site: Site, secret: str, by: str, name: str) -> None:
    now = left(site.home.ledger.dataset(name, by))
    one = site.bear(secret, "GET", f"/v1/datasets/{name}").json()
    listed = site.bear(secret, "GET", "/v1/datasets").json()["datasets"]
    families = site.bear(secret, "GET", "/v1/families").json()["families"]
    bodies = [one, *(body for body in listed if body["name"] == name)]
    bodies += [body for body in families if name in body["datasets"]]
    assert len(bodies) == 3
    for body in bodies:
        told = body["budget"]["left"]
        assert (told["words"], told["share"]) == (words_of(now), f"{now.share:.6f}")
        assert Decimal((told["one_job"] or {"epsilon": 0})["epsilon"]) == now.job.epsilon
    budget = types.Dataset.of(one).budget
    assert (budget.room, budget.one_job) == (words_of(now), now.job.epsilon)
    for path in ("/ui", "/ui/datasets", f"/ui/datasets/{name}", f"/ui/jobs/new?dataset={name}"):
        page = site.ask("GET", path, {"Accept": "text/html", "Cookie": f"dpserve={secret}"})
        assert page.status_code == 200
        text = shown(page.text)
        assert words_of(now).partition(". ")[2] in text, path
        if path == f"/ui/datasets/{name}" or ("windows" in told and not path.startswith("/ui/jobs")):
            assert words_of(now) in text, path
        elif not path.startswith("/ui/jobs"):
            assert (f"{percent_words(1 - float(told['share']))} used" if told["one_job"] else "Used up") in text, path


def check_a_job(site: Site, secret: str, by: str, name: str, window: str | None) -> None:
    """A plan, the job that it is the plan of, and the refusal of one that is too large."""

    def now() -> Left:
        return left(site.home.ledger.dataset(name, by, None, window))

    about = {
        "dataset": name,
        "learner": "lazybb-tree",
        "model": f"asked-{name}",
        **({"blocks": window} if window else {}),
    }
    refused = site.bear(secret, "POST", "/v1/plans", json={**about, "epsilon": "90"}).json()["error"]
    assert refused["code"] == "budget_refused"
    assert refused["details"]["left"] == now().to_json()
    used, _, room = words_of(now()).partition(". ")
    assert used in refused["message"].replace(" by jobs that have not started)", ")")
    assert room in refused["message"]
    asked = {**about, "epsilon": "0.02", "parameters": {"rounds": 4}}
    planned = site.bear(secret, "POST", "/v1/plans", json=asked)
    if planned.status_code == 403:
        return
    plan, answer = types.Plan.of(planned.json()), site.bear(secret, "POST", "/v1/jobs", json=asked)
    assert answer.status_code == 202, answer.text
    job = types.Job.of(site.bear(secret, "GET", f"/v1/jobs/{answer.json()['job']}").json())
    assert (plan.room, plan.one_job) == (job.room, job.one_job) == (words_of(now()), now().job.epsilon)
    page = site.ask("GET", f"/ui/jobs/{job.number}", {"Accept": "text/html", "Cookie": f"dpserve={secret}"})
    assert words_of(now()) in shown(page.text)


@pytest.mark.parametrize("kind", ["plain", "pure"])
def test_a_certificate_says_the_same(homes, tmp_path, monkeypatch, capsys, kind):
    shutil.copytree(homes[kind], tmp_path / "home")
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    dpserve("train", "d", "--learner", "lazybb", "--epsilon", "0.4")
    dpserve("train", "d", "--learner", "lazybb", "--epsilon", "0.3", "--model", "second")
    now = left(Home.open({"DPSERVE_HOME": str(tmp_path / "home")}).ledger.dataset("d"))
    assert words_of(now) in shown(capsys.readouterr().out)
    dpserve("model", "show", "second", "--certificate")
    assert used_words(now.share) in shown(capsys.readouterr().out)
    assert 0.1 < 1 - now.share < 0.6
