"""Into a browser's session and out of it: the token, shown once in a form, becomes a cookie of this server."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from serving.http.cookies import COOKIE, LOGIN, check_same_origin, cookie, local
from serving.http.routes import in_thread, state
from serving.pages.parts.ui import form_fields
from serving.process.first_sign_in import redeem
from serving.process.state import ADMITTING
from serving.process.tokens import PREFIX
from serving.wire.errors import NotReady, Unauthorized


async def login(request: Request) -> Response:
    """Sign in by a form with `token`, or the `code` of the first link, and `next`, the page to go to. One that is not
    good leads back, with `refused=1`, or `refused=link`.
    """
    check_same_origin(request.scope)
    fields = await form_fields(request, "token", "code", "next")
    serving = request.app.state.serving
    serving.require_ready()
    secret, code, wanted = fields["token"].strip(), fields["code"].strip(), local(fields["next"])
    if code:
        secret = await in_thread(redeem, serving.home.path, code)
    bearer = await serving.admit(secret.encode("utf-8", "replace")) if secret.startswith(PREFIX) else None
    if bearer is None:
        return RedirectResponse(f"{LOGIN}?refused={'link' if code else 1}&next={quote(wanted, safe='/')}", 303)
    request.scope["dpserve.token"] = bearer.token
    response = RedirectResponse(wanted, 303)
    begin_session(response, secret, _secure(request))
    return response


def begin_session(response: Response, secret: str, secure: bool) -> None:
    """Have the browser keep a token until it is closed. `secure`: it is sent over TLS alone."""
    response.set_cookie(COOKIE, secret, path="/", secure=secure, httponly=True, samesite="strict")


async def logout(request: Request) -> Response:
    """Forget the cookie. A token of a provider ends with it; one of dpserve stays good, until it is revoked. Back to
    the login with `refused=out` where it cannot be ended now.
    """
    check_same_origin(request.scope)
    secret, sign_on = cookie(request.scope["headers"]), state(request).sign_on
    then = LOGIN
    if secret is not None and sign_on is not None and not secret.startswith(PREFIX.encode()):
        try:
            await in_thread(sign_on.end, secret, limiter=ADMITTING)
        except Unauthorized:  # it is over
            pass
        except NotReady:
            then = f"{LOGIN}?refused=out"
    response = RedirectResponse(then, 303)
    response.delete_cookie(COOKIE, path="/", secure=_secure(request), httponly=True, samesite="strict")
    return response


def _secure(request: Request) -> bool:
    """Return whether the browser uses TLS, with us or with a proxy: then its cookie is sent over TLS alone."""
    return request.scope["scheme"] == "https" or request.headers.get("origin", "").lower().startswith("https:")
