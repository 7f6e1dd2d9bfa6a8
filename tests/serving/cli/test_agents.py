"""Agents at a real server, by the client of the protocol's SDK: a plan is done once, and no play overspends."""

from __future__ import annotations

import html
import json
import random
import re
import subprocess
import sys
from decimal import Decimal

import anyio
import pytest
from small_home import ROOT, environment, free_port, records, serving, until, write_files

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.system.lazy_import import later
from dpserve_verify.privacy.budget import Budget, Relation
from serving.cli.agents import SPENDING, Agents, server_of
from serving.cli.backends.choice import ServerAddress
from serving.process.tokens import new_token
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest

# A second of a processor, not in each process that collects tests.
httpx2, mcp, streamable_http = later("httpx2"), later("mcp"), later("mcp.client.streamable_http")
pytestmark = [pytest.mark.slow, pytest.mark.server]
SHARE, QUOTA = "0.01", "0.08"  # of a total of 8
COLUMNS = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex")
TRIAL = {"dataset": "adult", "learner": "lazybb", "parameters": {"rounds": 2}, "model": "bobs"}
COUNT = {"dataset": "adult", "select": "select count(*) from adult", "epsilon": "0.01"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Ana and bob may train on adult and predict; ana has a quota."""
    folder = tmp_path_factory.mktemp("agents")
    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    total = Budget.of("8", "0")  # pure: what jobs cost is the sum of their epsilons
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None)
    job.train(home, JobRequest("adult", "lazybb", "1", parameters={"rounds": 8}), by="test")
    for name in ("ana", "bob"):
        wanted = [Grant(name, "train", "dataset", "adult"), Grant(name, "predict", "model", "adult")]
        grants.add(home.ledger, wanted, "test")
    home.ledger.set_quota("adult", "ana", Decimal(SHARE), "an agent's", "test")
    tokens = {name: new_token(home, name, [], principal=name)[0] for name in ("ana", "bob")}
    home.ledger.log.database.close()
    with serving(home.path, workers=1) as found:
        found.tokens |= tokens
        yield found


def url_of(server) -> str:
    return f"http://127.0.0.1:{server.port}"


def spent_by(server, name: str) -> Decimal:
    """The sum of the prices of the principal's jobs, as the ledger claims them."""
    home = server.home
    entries = [home.ledger.reservation(each.seq).value for each in home.ledger.jobs() if each.by == name]
    return sum((Decimal(entry["claim"]["epsilon"]) for entry in entries), Decimal(0))


async def say(client, tool, **given):
    """What a tool answers, and whether it was refused."""
    found = await client.call_tool(tool, given)
    assert json.loads(found.content[0].text) == found.structured_content
    return found.structured_content, found.is_error


def test_an_agent_lists_plans_trains_asks_explains_and_predicts_over_both_transports(server):
    async def through(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {name for name, tool in tools.items() if tool.description.startswith("Costs")} == set(SPENDING)
        assert all(tool.annotations.read_only_hint == (name not in SPENDING) for name, tool in tools.items())
        lists = [await say(client, "list", what=what) for what in ("datasets", "models", "jobs")]
        assert [refused for _, refused in lists] == [False] * 3
        assert lists[0][0]["datasets"][0]["name"] == "adult"
        answers = {}
        for tool, request in (
            ("train", {**TRIAL, "epsilon": "0.02"}),
            ("query", {**COUNT, "epsilon": "0.011"}),
        ):
            plan, refused = await say(client, "plan", what=tool, request=request)
            assert not refused, plan
            assert 0 <= Decimal(plan["price"]) <= Decimal(request["epsilon"])
            answers[tool], refused = await say(client, tool, token=plan["token"], price=plan["price"])
            assert not refused, answers
            again, _ = await say(client, tool, token=plan["token"], price=plan["price"])
            assert again["job"] == answers[tool]["job"]
        assert (await say(client, "job", job=answers["train"]["job"]))[0]["dataset"] == "adult"
        predicted, _ = await say(client, "predict", model="adult@1", records=records(2))
        assert len(predicted["predictions"]) == 2
        assert not (await say(client, "explain", model="adult@1", records=records(1)))[1]

    async def over_stdio():
        own = environment(server.path.parent / "none", **said["env"], DPSERVE_TOKEN=server.tokens["bob"])
        own.pop("DPSERVE_HOME")
        how = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "serving.cli", *said["args"]], env=own, cwd=ROOT
        )
        async with mcp.Client(how) as client:
            await through(client)

    async def over_http(port):
        bearer = {"Authorization": f"Bearer {server.tokens['bob']}"}
        async with (
            httpx2.AsyncClient(headers=bearer, timeout=120) as found,
            mcp.Client(
                streamable_http.streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=found)
            ) as client,
        ):
            await through(client)
        async with mcp.Client(f"http://127.0.0.1:{port}/mcp") as nobody:  # the token of who started it opens nothing
            assert (await say(nobody, "list", what="datasets"))[0]["error"]["code"] == "forbidden"

    cookie = {"Accept": "text/html", "Cookie": f"dpserve={server.tokens['admin']}"}
    page = html.unescape(server.ask("GET", "/ui/tokens", None, headers=cookie).text)
    said = json.loads(re.search(r'<pre tabindex="0">(\{"command": "dpserve".*)</pre>', page)[1])  # as the page says it
    assert said["env"].pop("DPSERVE_TOKEN") == "…"
    anyio.run(over_stdio)
    port = free_port()
    own = environment(server.path.parent / "none", DPSERVE_URL=url_of(server), DPSERVE_TOKEN=server.tokens["admin"])
    own.pop("DPSERVE_HOME")
    command = [sys.executable, "-m", "serving.cli", "mcp", "--http", str(port)]
    with subprocess.Popen(command, env=own, cwd=ROOT) as process:
        try:
            until(lambda: _answers(port), "the door is open")
            anyio.run(over_http, port)
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        return httpx2.post(f"http://127.0.0.1:{port}/mcp", content=b"{}").status_code >= 400
    except httpx2.TransportError:
        return False


def test_a_hostile_agent_overspends_in_none_of_1000_plays(server):
    """It forges, cuts and swaps tokens, says other prices, takes another's plan, repeats itself at once, asks for more
    than there is, and sends what is nothing. What ana's jobs cost together is what was done by her plans, each once,
    and never more than her quota.
    """
    agents, chance = Agents(ServerAddress(url_of(server), None, None, "test")), random.Random(56)
    ana, bob = server.tokens["ana"], server.tokens["bob"]
    before, plans, done = spent_by(server, "ana"), [], {}

    async def play(client, others):
        kind = chance.choices(range(9), [1, 1, 1, 9, 9, 9, 9, 9, 9])[0]
        if kind == 0 or not plans:
            epsilon = chance.choice([f"0.0{chance.randrange(100, 400)}", "9", "-1", "nan", "1e9"])
            by = ", ".join(chance.sample(COLUMNS, 2))
            select = f"select {by}, count(*) from adult group by {by}"
            found, refused = await say(
                client, "plan", what="query", request={**COUNT, "select": select, "epsilon": epsilon}
            )
            plans.extend([] if refused else [found])
            return []
        plan = chance.choice(plans)
        token, price = plan["token"], plan["price"]
        match kind:
            case 1:
                return [("query", token, price)]
            case 2:
                return [("query", token, price)] * 3
            case 3:
                return [("query", token, chance.choice(["0", "sNaN", "1e-9", "", price + "1", "-" + price]))]
            case 4:
                at = chance.randrange(len(token))
                return [("query", token[:at] + chance.choice("Aa0.\ud800") + token[at + 1 :], price + " ")]
            case 5:
                return [(chance.choice(["train", "evaluate"]), token, price)]
            case 6:
                return [("query", chance.choice([others, "", ".", token.partition(".")[0], "é" * 99]), price)]
            case 7:
                return [("buy", token, price)]
        return [("query", [token], {"epsilon": price})]

    async def plays():
        async with mcp.Client(server_of(agents, ana)) as client, mcp.Client(server_of(agents, bob)) as other:
            others = (await say(other, "plan", what="query", request=COUNT))[0]["token"]
            for _ in range(1000):
                calls = await play(client, others)

                async def spend(tool, token, price):
                    found, refused = await say(client, tool, token=token, price=price)
                    if not refused:
                        done.setdefault(token, set()).add(found["job"])

                async with anyio.create_task_group() as group:
                    for call in calls:
                        group.start_soon(spend, *call)

    anyio.run(plays)
    spent = spent_by(server, "ana") - before
    priced = {plan["token"]: Decimal(plan["price"]) for plan in plans}
    assert 0 < spent <= Decimal(QUOTA) < sum(priced.values())  # she planned more than she had
    assert spent == sum(priced[token] for token in done)
    assert all(len(jobs) == 1 for jobs in done.values())


def test_without_a_server_or_a_token_it_says_what_to_set(tmp_path, capsys, monkeypatch):
    from serving.cli.app import run

    for name in ("DPSERVE_URL", "DPSERVE_TOKEN", "DPSERVE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run(["mcp"]) == 2
    assert "set DPSERVE_URL and DPSERVE_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("DPSERVE_URL", "http://127.0.0.1:1")
    assert run(["mcp"]) == 2
    assert "DPSERVE_TOKEN is not set" in capsys.readouterr().err
