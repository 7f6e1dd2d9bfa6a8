"""A browser's session: whose cookie counts, from where, and how it is answered. No socket; the doors are real."""

from __future__ import annotations

import asyncio

import pytest
from in_process import BASE, HOST, code, site_at
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from accountant.access import tokens
from serving.http import cookies
from serving.http.routes import Door, caller
from serving.pages import login
from serving.pages.parts import static_files

PAGE = {"Accept": "text/html,application/xhtml+xml"}
OURS = {"Origin": BASE, "Sec-Fetch-Site": "same-origin"}


async def who(request):
    return JSONResponse({"who": caller(request).name})


DOORS = (
    Door("GET", "/ui", ("audit",), who, "first page"),
    Door("GET", "/ui/ledger", ("audit",), who, "a page"),
    Door("POST", "/ui/tokens", ("admin",), who, "a change"),
    Door("POST", "/v1/jobs", ("audit",), who, "a door without a page"),
    Door("GET", "/v1/models", ("audit",), who, "the same"),
    Door("GET", "/ui/static/{path:path}", (), static_files.answer, "files", media="*/*", hidden=True),
    Door("POST", "/ui/login", (), login.login, "in"),
    Door("POST", "/ui/logout", (), login.logout, "out"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with site_at(tmp_path_factory.mktemp("session"), DOORS) as found:
        found.secret = found.token("auditor", "audit")
        yield found


def with_cookie(site, method, path, headers=None, **more):
    return site.ask(method, path, {"Cookie": f"a=1; dpserve={site.secret}; b=2", **(headers or {})}, **more)


def sign_in(site, token, wanted="/ui/ledger", **more):
    return site.ask("POST", "/ui/login", {**OURS, **PAGE}, data={"token": token, "next": wanted}, **more)


def test_good_token_becomes_a_cookie_and_opens_pages(site):
    answer = sign_in(site, f" {site.secret}\n")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/ledger")
    name, _, rest = answer.headers["set-cookie"].partition("=")
    value, *attributes = rest.split("; ")
    assert (name, value) == ("dpserve", site.secret)
    assert {each.lower() for each in attributes} == {"httponly", "path=/", "samesite=strict"}  # and until it is closed
    assert with_cookie(site, "GET", "/ui/ledger").json() == {"who": "auditor"}


@pytest.mark.parametrize(("base", "secure"), [(BASE, False), (f"https://{HOST}", True)])
def test_under_tls_the_cookie_never_travels_without(site, base, secure):
    answer = site.ask("POST", "/ui/login", {"Origin": base}, base=base, data={"token": site.secret})
    assert answer.headers["location"] == "/ui"
    assert ("secure" in answer.headers["set-cookie"].lower()) is secure


def test_behind_a_proxy_that_ends_tls_the_origin_is_https(site):
    answer = site.ask("POST", "/ui/login", {"Origin": f"https://{HOST}"}, data={"token": site.secret})
    assert answer.status_code == 303
    assert "secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("token", ["", "dps_", "dps_wrong", "x" * 1000, "dps_é\ud800"])
def test_wrong_token_leads_back_and_sets_no_cookie(site, token):
    body = {"token": token.encode("utf-8", "surrogatepass"), "next": "/ui/ledger"}
    answer = site.ask("POST", "/ui/login", {**OURS, "Accept": "*/*"}, data=body)
    if answer.status_code == 400:  # not UTF-8
        assert code(answer) == (400, "bad_input")
    else:
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login?refused=1&next=/ui/ledger")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("wanted", "goes"),
    [
        ("/ui", "/ui"),
        ("/ui/ledger?q=a%20b&page=2", "/ui/ledger?q=a%20b&page=2"),
        ("", "/ui"),
        ("//evil.example", "/ui"),
        ("https://evil.example/ui", "/ui"),
        ("/\\evil.example", "/ui"),
        ("/ui\\..\\..", "/ui"),
        ("/ui/\r\nSet-Cookie: x=1", "/ui"),
        ("/ui.evil.example", "/ui"),
        ("/uix", "/ui"),
        ("/v1/models", "/ui"),
        ("javascript:alert(1)", "/ui"),
        ("/ui/login?next=/ui/login", "/ui"),
        ("/ui/logout", "/ui"),
        ("/ui/" + "a" * 3000, "/ui"),
    ],
)
def test_next_is_a_page_of_ours(wanted, goes, site):
    assert cookies.local(wanted) == goes
    assert sign_in(site, site.secret, wanted).headers["location"] == goes


def test_logout_forgets_the_cookie_and_keeps_the_token(site):
    answer = with_cookie(site, "POST", "/ui/logout", OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
    assert 'dpserve=""' in answer.headers["set-cookie"]
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert with_cookie(site, "GET", "/ui").status_code == 200


# From where


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        (OURS, True),
        ({"Origin": BASE}, True),  # a browser that does not trust the connection leaves Sec-Fetch-Site out
        ({"Origin": BASE.upper()}, True),
        ({}, False),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://ledger.example"}, False),
        ({"Origin": "http://ledger.example:3001"}, False),
        ({"Origin": "ftp://" + HOST}, False),
        ({"Origin": f"{BASE}.evil.example"}, False),
        ({"Origin": BASE, "Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": BASE, "Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": BASE, "Sec-Fetch-Site": "none"}, False),
        ({"Origin": BASE, "Host": "other.example"}, False),
        ({"Origin": BASE, "Referer": BASE, "Sec-Fetch-Site": "CROSS-SITE"}, False),
    ],
)
def test_change_by_cookie_comes_from_our_own_pages(site, headers, may):
    answer = with_cookie(site, "POST", "/v1/jobs", headers, json={})
    assert (answer.status_code == 200) is may
    if not may:
        assert code(answer) == (403, "cross_site")


def test_two_origins_are_none(site):
    headers = [("Cookie", f"dpserve={site.secret}"), ("Origin", BASE), ("Origin", "http://evil.example")]
    assert code(site.ask("POST", "/v1/jobs", headers)) == (403, "cross_site")


@pytest.mark.parametrize(
    ("found", "may"),
    [(None, True), ("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False), ("", False)],
)
def test_reading_by_cookie_comes_from_our_pages_or_the_address_bar(site, found, may):
    answer = with_cookie(site, "GET", "/v1/models", {} if found is None else {"Sec-Fetch-Site": found})
    assert (answer.status_code == 200) is may
    if not may:
        assert code(answer) == (403, "cross_site")


@pytest.mark.parametrize("path", ["/ui/login", "/ui/logout"])
def test_nobody_else_signs_a_browser_in_or_out(site, path):
    headers = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert code(with_cookie(site, "POST", path, headers, data={"token": site.secret})) == (403, "cross_site")


def test_header_goes_before_the_cookie(site):
    bearer = {"Authorization": f"Bearer {site.secret}"}
    elsewhere = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert site.ask("POST", "/v1/jobs", {**bearer, **elsewhere}, json={}).status_code == 200
    wrong = {"Authorization": "Bearer dps_wrong"}
    assert code(with_cookie(site, "GET", "/v1/models", wrong)) == (401, "unauthorized")
    assert code(with_cookie(site, "GET", "/v1/models", {"Authorization": "Basic x"})) == (401, "unauthorized")


@pytest.mark.parametrize(
    "cookie", ["", "dpserve", "dpserve=", "dpserve=dps_wrong", "dpserve2={}", "dpserve={}; dpserve={}", "dpserve=x{}"]
)
def test_cookie_of_one_form_counts(site, cookie):
    headers = {"Cookie": cookie.replace("{}", site.secret)}
    assert code(site.ask("GET", "/v1/models", headers)) == (401, "unauthorized")


def test_revoked_token_ends_its_sessions(site):
    secret = site.token("passing", "audit")
    headers = {"Cookie": f"dpserve={secret}"}
    assert site.ask("GET", "/ui/ledger", headers).status_code == 200
    tokens.revoke(site.home.ledger, "passing")
    site.look()
    assert site.ask("GET", "/ui/ledger", headers).status_code == 401
    assert site.ask("GET", "/ui/ledger", {**headers, **PAGE}).headers["location"] == "/ui/login?next=/ui/ledger"


# What is answered


def test_page_without_a_session_leads_to_the_login(site):
    answer = site.ask("GET", "/ui/ledger?q=adult&page=2", PAGE)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui/login?next=/ui/ledger%3Fq%3Dadult%26page%3D2"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/models"), ("POST", "/ui/tokens"), ("GET", "/uix")])
def test_what_is_no_page_is_refused_as_ever(site, method, path):
    assert code(site.ask(method, path, PAGE)) == (401, "unauthorized")


def test_script_on_a_page_is_refused_as_ever(site):
    assert code(site.ask("GET", "/ui/ledger", {"Accept": "application/json"})) == (401, "unauthorized")


def test_errors_of_pages_are_pages_and_others_are_json(site):
    def page(request: Request, answer):
        return HTMLResponse(f"<h1>{answer.status_code}</h1>", answer.status_code)

    site.app.state.error_page = page
    try:
        wrong = with_cookie(site, "POST", "/ui/tokens", {**PAGE, **OURS})
        assert (wrong.status_code, wrong.text) == (403, "<h1>403</h1>")
        assert with_cookie(site, "GET", "/ui/nope", PAGE).text == "<h1>404</h1>"
        assert code(with_cookie(site, "POST", "/ui/tokens", OURS)) == (403, "forbidden")
        site.app.state.error_page = lambda request, answer: 1 / 0
        assert code(with_cookie(site, "POST", "/ui/tokens", {**PAGE, **OURS})) == (403, "forbidden")
    finally:
        del site.app.state.error_page


def test_static_files_of_the_pages_are_open(site):
    assert code(site.ask("GET", "/ui/static/nope.css")) == (404, "unknown_name")  # and not 401
    assert code(site.ask("GET", "/ui/staticx")) == (401, "unauthorized")


def test_nobody_comes_in_by_a_websocket(site):
    said = []

    async def send(message):
        said.append(message)

    scope = {"type": "websocket", "path": "/ui", "headers": [(b"cookie", f"dpserve={site.secret}".encode())]}
    asyncio.run(site.doors(scope, None, send))
    assert said == [{"type": "websocket.close", "code": 1008}]
