"""Security headers of every answer."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Scope

Headers = list[tuple[bytes, bytes]]

# Pages run our own files alone: no inline script or style, no eval, no address outside. Images
# made on the page are data: or blob:.
PAGE_POLICY = (
    b"default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
DATA_POLICY = b"default-src 'none'; frame-ancestors 'none'"  # what is no page loads nothing
ALL: Headers = [
    (b"x-content-type-options", b"nosniff"),
    # Others learn nothing of where a reader was. With `no-referrer`, browsers would send `Origin: null` with our forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
LAST = (b"connection", b"close")  # of a server that was asked to stop: the next request goes elsewhere
KEPT_BY_NOBODY = (b"cache-control", b"no-store")
PAGE: Headers = [(b"content-security-policy", PAGE_POLICY), (b"cross-origin-opener-policy", b"same-origin"), *ALL]
DATA: Headers = [(b"content-security-policy", DATA_POLICY), *ALL]
PAGES = frozenset({"ui", "docs", "api"})  # how the paths of pages begin
TLS: Headers = [(b"strict-transport-security", b"max-age=31536000")]


def with_ours(scope: Scope, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Add our headers to those of an answer; `no-store` where it sets no `Cache-Control`."""
    combined = list(headers)
    names = [name for name, _ in combined]
    combined += PAGE if scope["path"].partition("/")[2].partition("/")[0] in PAGES else DATA
    if scope["scheme"] == "https":
        combined += TLS
    if b"cache-control" not in names:
        combined.append(KEPT_BY_NOBODY)
    return combined
