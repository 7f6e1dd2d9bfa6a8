"""Tokens over a real server of two workers, and in a real browser: limits, trail, headers, and pages of other sites."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from browser import as_new, no_faults, sign_in
from in_process import BASE, site_at
from ledgers import registration
from pages import blocks, checkout, follow
from small_home import PATIENCE, free_port, of_every_worker, serving, until

from accountant.access import tokens
from accountant.access.tokens import Limits
from accountant.home import Home
from serving.app import DOORS
from serving.process.state import ANEW_SECONDS
from serving.process.tokens import PREFIX, new_token
from serving.process.watch.trail_lines import lines

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("tokens") / "home")})
    with serving(home.path, workers=2) as found:
        yield found


def token(server, name, scopes=("audit",), limits=tokens.NO_LIMITS):
    """A new one, once every worker knows it."""
    server.tokens[name], found = new_token(server.home, name, scopes, limits)
    known = "all workers know it"
    of_every_worker(lambda: server.get("/nope", scope=name).status_code == 404, known)
    return found


def trail_of(server, name):
    return [line for line in lines(server.path) if line["token"] == name]


def written(server):
    """Requests of the limited token, also those of which there is but a sum."""
    return sum(line.get("times", 1) for line in trail_of(server, "limited"))


def test_limit_is_exact_over_the_workers_and_every_request_is_in_the_trail(server):
    """The waiting for the token counts too: it asks of a token that may ask 150 times."""
    token(server, "limited", limits=Limits(per_day=150))
    before = written(server)
    headers = {"Authorization": f"Bearer {server.tokens['limited']}"}

    def ask(_):
        with httpx.Client(headers=headers, base_url=f"http://127.0.0.1:{server.port}") as client:
            return [client.get("/v1/models") for _ in range(20)]

    with ThreadPoolExecutor(10) as pool:
        answers = [answer for found in pool.map(ask, range(10)) for answer in found]
    statuses = Counter(answer.status_code for answer in answers)
    until(lambda: server.get("/nope").status_code == 404 and written(server) == before + 200, "the trail has them all")
    through = [line for line in trail_of(server, "limited") if line["status"] != 429]
    assert len(through) == 150
    assert statuses[429] == 200 - (150 - before)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "too_many_requests"
    assert int(refused.headers["Retry-After"]) >= 1


def test_a_token_just_made_is_known_to_every_worker_at_its_first_request(server):
    """A worker looks by itself twice a second: of ten tokens asked at once, at most two would fall behind a look."""
    for number in range(10):
        secret, _ = new_token(server.home, f"new-{number}", ["audit"])
        url, headers = f"http://127.0.0.1:{server.port}/v1/models", {"Authorization": f"Bearer {secret}"}
        with ThreadPoolExecutor(4) as pool:  # each connection is its own, which either worker may take
            asked = [pool.submit(httpx.get, url, headers=headers, timeout=PATIENCE) for _ in range(4)]
            assert [each.result().status_code for each in asked] == [200] * 4


def test_tokens_that_are_none_make_a_worker_look_no_oftener(tmp_path, monkeypatch):
    """Three hundred at once, then one after the other: looks begin ANEW_SECONDS apart, and each is answered 401."""
    with site_at(tmp_path, DOORS) as site:
        looks, refresh = [], site.app.state.serving.refresh
        monkeypatch.setattr(
            site.app.state.serving, "refresh", lambda whole: looks.append(time.monotonic()) or refresh()
        )
        headers = [{"Authorization": f"Bearer {PREFIX}{number}"} for number in range(300)]

        async def asking():
            async with httpx.AsyncClient(transport=httpx.ASGITransport(site.doors), base_url=BASE) as client:
                answers = await asyncio.gather(*(client.get("/v1/models", headers=each) for each in headers))
                answers += [await client.get("/v1/models", headers=each) for each in headers[:5]]
            return {answer.status_code for answer in answers}

        began = time.monotonic()
        assert asyncio.run(asking()) == {401}
        assert 6 <= len(looks) <= 1 + (time.monotonic() - began) / ANEW_SECONDS
        site.app.state.serving._away = True  # the ledger cannot be asked: nobody waits for it
        assert site.bear(f"{PREFIX}other", "GET", "/v1/models").status_code == 401
        assert len(looks) <= 1 + (time.monotonic() - began) / ANEW_SECONDS


def test_headers_stand_once_on_every_answer(server):
    for path in ("/livez", "/v1/models", "/nope", "/docs.json", "/schema.json", "/ui", "/ui/login", "/metrics"):
        found = server.get(path)
        for name in ("content-security-policy", "x-content-type-options", "referrer-policy", "cache-control"):
            assert len(found.headers.get_list(name)) == 1, (path, name)


# In a browser


@pytest.fixture
def page(server, shared):
    return as_new(shared, server)


@pytest.mark.system("chromium")
def test_session_from_login_to_logout(server, page):
    sign_in(page, server, "audit", "/ui/models?q=adult")
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["value"]) == ("dpserve", server.tokens["audit"])
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    assert page.evaluate("document.cookie") == ""
    assert page.goto("/ui").status == 200
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/ui/login")
    assert page.context.cookies() == []
    page.goto("/ui")
    page.wait_for_url("**/ui/login?next=/ui")
    no_faults(page)


@pytest.mark.system("chromium")
def test_wrong_token_is_told_and_the_page_wanted_is_kept(server, page):
    page.goto("/ui/ledger")
    page.get_by_label("Token").fill("dps_wrong")
    page.get_by_role("button", name="Sign in").click()
    assert page.get_by_role("alert").is_visible()
    page.get_by_label("Token").fill(server.tokens["audit"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/ledger")


@pytest.mark.system("chromium")
def test_revoked_token_is_out_at_its_next_page(server, page):
    token(server, "passing")
    sign_in(page, server, "passing")
    tokens.revoke(server.home.ledger, "passing")
    until(lambda: server.get("/nope", scope="passing").status_code == 401, "it is known no more")

    def out():
        page.goto("/ui")
        return page.url.endswith("/ui/login?next=/ui")

    until(out, "no worker knows it")


@pytest.mark.system("chromium")
def test_scripts_and_styles_of_a_page_are_our_files_alone(server, page):
    sign_in(page, server, "audit")
    ran = page.evaluate(
        """() => {
            const script = document.createElement("script")
            script.textContent = "window.ran = true"
            document.body.append(script)
            return window.ran === true
        }"""
    )
    assert ran is False
    assert any("Content Security Policy" in fault for fault in page.faults)


EVIL = """<!doctype html><form id="f" method="post" action="http://{to}/ui/logout"></form>
<iframe id="framed" src="http://{to}/ui"></iframe>
<script>
async function ask(method) {{
  try {{ return (await fetch("http://{to}/v1/models", {{method, credentials: "include"}})).status }}
  catch (error) {{ return "refused" }}
}}
async function blind(path) {{
  await fetch("http://{to}" + path, {{method: "POST", mode: "no-cors", credentials: "include", body: "x"}})
    .catch(() => 0)
}}
</script>"""


@pytest.fixture
def elsewhere(server):
    """A page of another port of this machine: another origin, and the same site, so that cookies go along."""
    text = EVIL.format(to=f"127.0.0.1:{server.port}").encode()

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Answer) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


@pytest.mark.system("chromium")
def test_page_of_another_origin_can_use_no_session(server, page, elsewhere):
    token(server, "victim", ("admin",))
    sign_in(page, server, "victim")
    page.goto(elsewhere)
    before = len(trail_of(server, "victim"))
    assert page.evaluate("ask('GET')") == "refused"
    assert page.evaluate("ask('POST')") == "refused"
    page.evaluate("blind('/v1/jobs')")
    page.evaluate("blind('/ui/tokens')")
    assert page.frames[1].evaluate("document.body?.innerText ?? ''").count("Datasets") == 0
    with page.expect_navigation() as gone:
        page.evaluate("document.getElementById('f').submit()")
    assert gone.value.status == 403
    assert page.context.cookies()  # signed out by nobody else
    found = trail_of(server, "victim")
    assert found[: len(found) - before]
    assert {line["status"] for line in found[: len(found) - before]} == {403}


# The page about all this


@pytest.mark.system("curl", "jq")
def test_every_command_of_the_page_runs(server, tmp_path):
    folder = checkout(tmp_path)
    (folder / "home").symlink_to(server.path)
    server.home.ledger.register(registration())  # the dataset that its grants name
    script = "\n".join(blocks("docs/access.md", "sh"))
    assert script.count("dpserve ") == 12
    (folder / "auth").write_text(f"Authorization: Bearer {server.tokens['admin']}\n")
    script = f"export PATH=$PWD/.venv/bin:$PATH\nURL=http://127.0.0.1:{server.port}\n{script}"
    said = follow(folder, script.replace(" 17 ", " $(dpserve grant list --json | jq '.grants[0].grant') "))
    assert json.loads((folder / "grant.json").read_text())["principal"] == "team-a"
    assert '"revoked":' in said
    assert "20 per second, 100000 per day" in said
    assert (folder / "partner.token").read_text().startswith("dps_")
    assert json.loads((folder / "partner.json").read_text()) == {"requests": []}  # it never asked


def test_the_page_shows_a_line_of_the_trail_as_it_is(server):
    (shown,) = blocks("docs/access.md", "json")
    assert server.get("/v1/models").status_code == 200
    line = until(lambda: next(iter(lines(server.path)), None), "the trail has a line")
    assert list(json.loads(shown)) == list(line)
