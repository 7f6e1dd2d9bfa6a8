"""The cookie of a browser's session, accepted only from pages of this server.

The cookie holds the token itself: there is no table of sessions, and a revoked token ends its sessions with it. A
browser sends a cookie by itself, also for what a page of somebody else asks of it; hence `check_same_origin`. Whoever
sends an `Authorization` header is not asked for an origin, and no cookie counts beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from serving.process.tokens import FORMS, PREFIX
from serving.wire.errors import CrossSite

COOKIE = "dpserve"
LOGIN, LOGOUT, HOME = "/ui/login", "/ui/logout", "/ui"
# To a provider who vouches for people, from it, and what it says when they sign out there.
SIGN_ON, RETURN, SIGN_OUT = "/ui/sso", "/ui/sso/back", "/ui/sso/logout"
SIGN_INS = frozenset({("POST", LOGIN), ("GET", RETURN)})
SAFE = frozenset({"GET", "HEAD"})
Headers = Iterable[tuple[bytes, bytes]]
# A path of ours and nothing that a browser could read as another host, or that steers an answer's headers.
_LOCAL = re.compile(r"/(?:ui|docs|api)(?:[/?][\w\-./?=&%+:@,~]*)?", re.ASCII)


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def cookie(headers: Headers) -> bytes | None:
    """Return the token in the session's cookie; None where it is missing, doubled or of another form."""
    pairs = [pair.strip().partition(b"=") for value in _values(headers, b"cookie") for pair in value.split(b";")]
    tokens = [value for name, _, value in pairs if name == COOKIE.encode()]
    return tokens[0] if len(tokens) == 1 and tokens[0].startswith(FORMS) else None


def check_same_origin(scope: Scope) -> None:
    """Raise CrossSite unless the request comes from a page of this server, or (to read) from the address bar.

    `Sec-Fetch-Site` is sent by browsers where they trust the connection; `Origin` by all of them, with every form.
    """
    site, reads = _values(scope["headers"], b"sec-fetch-site"), scope["method"] in SAFE
    if site not in ([], [b"same-origin"]) and not (reads and site == [b"none"]):
        raise CrossSite(
            "Sec-Fetch-Site: a page of another site must not use this browser's session; open the address itself"
        )
    if not reads and not _own_origin(scope):
        raise CrossSite("Origin: must be this server's own; without a browser, use Authorization: Bearer")


def _own_origin(scope: Scope) -> bool:
    """Return whether `Origin` is ours. Behind a proxy that ends TLS, the browser says https where we see http."""
    host, origin = _values(scope["headers"], b"host"), _values(scope["headers"], b"origin")
    if len(host) != 1 or len(origin) != 1 or not host[0]:
        return False
    schemes = {str(scope["scheme"]).encode(), b"https"}
    return origin[0].lower() in {scheme + b"://" + host[0].lower() for scheme in schemes}


def is_page(scope: Scope) -> bool:
    """Return whether a browser asks for a page, so that it must be answered with one."""
    path = scope["path"]
    ours = path in ("/", HOME, "/docs", "/api") or path.startswith((HOME + "/", "/docs/"))
    return ours and any(b"text/html" in value for value in _values(scope["headers"], b"accept"))


def to_login(scope: Scope) -> Response:
    """Redirect to the login, or to the provider whose token is over, and from there back to where the browser wanted to
    go.
    """
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = local(scope["path"] + ("?" + query if query else ""))
    secret = cookie(scope["headers"]) or PREFIX.encode()
    way = LOGIN if secret.startswith(PREFIX.encode()) else SIGN_ON
    return RedirectResponse(f"{way}?next={quote(wanted, safe='/')}", 303)


def local(path: str) -> str:
    """Return the path where it is one of our pages; the first page for any other, and for login and logout."""
    if len(path) > 2000 or not _LOCAL.fullmatch(path) or path.startswith((LOGIN, LOGOUT, SIGN_ON)):
        return HOME
    return path
