"""The headers of every answer: what a browser may do with it."""

from __future__ import annotations

import pytest
from in_process import HOST, site_at
from starlette.responses import JSONResponse

from serving.http.routes import Door


async def answer(_request):
    return JSONResponse({})


async def kept(_request):
    return JSONResponse({}, headers={"Cache-Control": "public, max-age=31536000, immutable"})


async def broken(_request):
    raise ZeroDivisionError


DOORS = (
    Door("GET", "/livez", (), answer, "alive"),
    Door("GET", "/v1/models", ("audit",), answer, "models"),
    Door("GET", "/v1/broken", ("audit",), broken, "a bug"),
    Door("GET", "/ui/ledger", ("audit",), answer, "a page"),
    Door("GET", "/ui/static/a.css", (), kept, "a file"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with site_at(tmp_path_factory.mktemp("headers"), DOORS) as found:
        found.secret = found.token("auditor", "audit")
        yield found


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/livez", 200), ("/v1/models", 200), ("/v1/nope", 404), ("/v1/broken", 500), ("/ui/ledger", 200),
        ("/ui/static/a.css", 200), ("/ui/nope", 404),
    ],
)  # fmt: skip
def test_every_answer_carries_them(site, path, status):
    found = site.bear(site.secret, "GET", path)
    assert found.status_code == status
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "same-origin"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    policy = found.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert policy.startswith("default-src 'self'" if path.startswith("/ui") else "default-src 'none'")
    for hole in ("unsafe", "*", "http:", "https:"):
        assert hole not in policy


def test_refusals_carry_them(site):
    assert site.ask("GET", "/v1/models").headers["x-content-type-options"] == "nosniff"
    to_login = site.ask("GET", "/ui/ledger", {"Accept": "text/html"})
    assert to_login.status_code == 303
    assert "frame-ancestors 'none'" in to_login.headers["content-security-policy"]


@pytest.mark.parametrize(("scheme", "says"), [("http", None), ("https", "max-age=31536000")])
def test_under_tls_browsers_are_told_to_stay_there(site, scheme, says):
    found = site.ask("GET", "/livez", base=f"{scheme}://{HOST}")
    assert found.headers.get("strict-transport-security") == says


def test_nobody_keeps_an_answer_that_does_not_say_so(site):
    assert site.bear(site.secret, "GET", "/v1/models").headers["cache-control"] == "no-store"
    found = site.ask("GET", "/ui/static/a.css")
    assert found.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]
