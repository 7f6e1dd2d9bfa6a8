"""Plans are made at the price desk, in turns of callers: nobody's predictions wait for them."""

from __future__ import annotations

import ledgers
import pytest
from in_process import Site, code

from accountant.home import Home
from serving.app import DOORS
from serving.process.prices import PriceRequest
from serving.process.workers.desk_wire import function_of, name_of
from serving.process.workers.price_desk import MODULES
from serving.wire.errors import NotReady
from training.planning.price_engine import ENGINE

MEASURED = {
    "answers": {"dataset": "adult", "select": "select count(*) from adult"},
    "evaluations": {"model": "adult", "dataset": "adult"},
    "profiles": {"dataset": "adult"},
}
JOB = {"dataset": "adult", "learner": "lazybb"}
BODIES = {
    **{f"/v1/{kind}": body for kind, body in MEASURED.items()},
    **{f"/v1/plans/{kind}": body for kind, body in MEASURED.items()},
    "/v1/plans": JOB,
    "/v1/jobs": JOB,
    "/v1/schedules": {**JOB, "name": "weekly", "every": "week"},
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    home = Home.open(ledgers.place(ledgers.copy(ledgers.trained(), tmp_path / "home")))
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    return Site(home, DOORS)


def test_a_plan_is_made_nowhere_but_at_the_desk(site, monkeypatch):
    """Where the desk is said to be gone, every door that plans says so, and had asked it for a function of its own."""
    secret, asked = site.token("asks", "train", "evaluate"), []
    ENGINE.forget()  # what another test had priced is asked of nobody

    def ask(_, function, *arguments):
        asked.append(function_of(name_of(function), MODULES))
        raise NotReady("the desk is gone")

    monkeypatch.setattr(PriceRequest, "__call__", ask)
    paths = {door.path for door in DOORS if door.method == "POST" and door.path.startswith("/v1/plans")}
    for path in sorted(paths | BODIES.keys()):
        answer = site.bear(secret, "POST", path, json={**BODIES[path], "epsilon": "0.1"})
        assert (path, *code(answer)) == (path, 503, "not_ready"), answer.text
    assert len(asked) == len(BODIES)
