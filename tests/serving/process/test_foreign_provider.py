"""Single sign-on by a certified provider of OpenID Connect, of npm, that tells us itself who signs out there."""

from __future__ import annotations

import subprocess
import sys

import httpx
import npm
import pytest
from browser import chromium, new_page
from small_home import ROOT, adult_home, free_port, running, until

from accountant.access import grants
from accountant.access.grants import Grant

pytestmark = [pytest.mark.server, pytest.mark.system("node", "npm", "chromium")]


def answers(url):
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def provider(tmp_path):
    """Its address, and that of the server that it knows."""
    folder = tmp_path / "provider"
    folder.mkdir()
    npm.install(ROOT / "tests" / "node_oidc", folder)
    issuer, site = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = ["node", "provider.mjs", issuer.rpartition(":")[2], site]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: answers(f"{issuer}/.well-known/openid-configuration"), "the provider answers")
        yield issuer, site
    finally:
        process.kill()
        process.wait()


def test_who_signs_out_there_is_nobody_here_at_once(provider, tmp_path):
    issuer, site = provider
    home, port, secret = adult_home(tmp_path, 3), int(site.rpartition(":")[2]), tmp_path / "secret"
    secret.write_text("hush\n")
    grants.add(home.ledger, [Grant(f"sso:{issuer} group ward", "train", "dataset", "adult")], "cli:op")
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port), "--workers", "2"]
    more = {"DPSERVE_SSO": f"{issuer}?client=dpserve&secret={secret}&url={site}", "DPSERVE_JOB_WORKERS": "0"}
    with running(home.path, command, port, ROOT, **more) as server, chromium() as browser:
        page = new_page(browser, server)
        page.goto("/ui/login?next=/ui/datasets/adult")
        page.get_by_role("link", name="Sign in with your organization").click()
        page.locator("[name=login]").fill("ana")
        page.locator("[name=password]").fill("any")
        page.locator("[type=submit]").click()
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/ui/datasets/adult")
        assert page.locator(".who .name").inner_text() == f"sso:{issuer} person ana"
        (session,) = [each["value"] for each in page.context.cookies() if each["name"] == "dpserve"]
        token = {"Authorization": f"Bearer {session}"}

        def ask():
            return server.ask("GET", "/v1/datasets/adult", scope=None, headers=token).status_code

        until(lambda: {ask() for _ in range(10)} == {200}, "both workers know the token")
        page.goto(f"{issuer}/session/end")
        page.get_by_role("button", name="Yes, sign me out").click()
        page.wait_for_url("**/session/end/success")
        assert {ask() for _ in range(10)} == {401}
        page.goto("/ui/datasets/adult")
        page.wait_for_url(f"{issuer}/**")
        assert page.locator("[name=login]").is_visible()
