"""Into a browser's session by single sign-on: to the provider and back, and what command lines need to know of it.

What must come back stands in a cookie of the browser that began, for ten minutes and for one try. The session's cookie
holds the ID token, which ends by itself, or when its person signs out there; a page that is asked for after that goes
to the provider again, who knows whether its people are still there.
"""

from __future__ import annotations

from hmac import compare_digest
from urllib.parse import quote, unquote

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from accountant.errors import UnknownName
from dpserve_verify.errors import DpserveError
from serving.http.cookies import LOGIN, RETURN, SIGN_ON, SIGN_OUT, local
from serving.http.routes import Door, in_thread, state
from serving.pages.login import begin_session
from serving.pages.parts.ui import form_fields, page
from serving.process.config.limits import SIGN_INS, meter
from serving.process.sso import Attempt, SingleSignOn
from serving.process.state import ADMITTING
from serving.process.tokens import new_code
from serving.process.watch.access_log import note_refusal
from serving.wire.errors import Unauthorized, json_response

ATTEMPT, ATTEMPT_SECONDS = "dpserve-sso", 600
MOST_COOKIE = 3800  # bytes that browsers keep
HTML = "text/html"
ASKING = anyio.CapacityLimiter(8)  # threads that wait for a provider: a slow one keeps all others free


def _sign_on(request: Request) -> SingleSignOn:
    found = state(request).sign_on
    if found is None:
        raise UnknownName("sso: this server has no single sign-on; DPSERVE_SSO names a provider")
    return found


async def begin(request: Request) -> Response:
    """Redirect to the provider."""
    sign_on, attempt = _sign_on(request), Attempt(new_code(), new_code(), new_code())
    response = RedirectResponse(await in_thread(sign_on.address, attempt, limiter=ASKING), 303)
    wanted = quote(local(request.query_params.get("next", "")), safe="")
    value = "~".join((attempt.state, attempt.nonce, attempt.verifier, wanted))
    secure = sign_on.provider.url.startswith("https:")
    response.set_cookie(ATTEMPT, value, ATTEMPT_SECONDS, path=SIGN_ON, secure=secure, httponly=True, samesite="lax")
    return response


async def finish(request: Request) -> Response:
    """Begin a session with what the provider gives for the code that it sent with the browser; back to the login where
    that is not good.
    """
    sign_on, query = _sign_on(request), request.query_params
    try:
        state_sent, nonce, verifier, wanted = request.cookies.get(ATTEMPT, "").split("~")
        is_from_it = query.get("iss", sign_on.provider.issuer) == sign_on.provider.issuer  # RFC 9207
        if not (state_sent and is_from_it and compare_digest(state_sent.encode(), query.get("state", "").encode())):
            raise ValueError
        attempt = Attempt(state_sent, nonce, verifier)
        meter(state(request).path).admit(SIGN_INS)
        token, person = await in_thread(sign_on.redeem, attempt, query.get("code", ""), limiter=ASKING)
        if len(token) > MOST_COOKIE:
            raise ValueError
    except (Unauthorized, ValueError) as error:
        note_refusal(error if isinstance(error, DpserveError) else Unauthorized("sso"))
        refused = RedirectResponse(f"{LOGIN}?refused=sso", 303)
        refused.delete_cookie(ATTEMPT, path=SIGN_ON)
        return refused
    request.scope["dpserve.token"] = person.token
    # A page of ours, and no redirect: a browser that another site sent here would not show us the session's cookie.
    response = page(request, "sso.html", next=local(unquote(wanted)))
    begin_session(response, token, sign_on.provider.url.startswith("https:"))
    response.delete_cookie(ATTEMPT, path=SIGN_ON)
    return response


async def sign_out(request: Request) -> Response:
    """End what the provider made for whom its logout token names (OpenID Connect Back-Channel Logout 1.0)."""
    fields = await form_fields(request)
    await in_thread(_sign_on(request).sign_out, fields.get("logout_token", "").encode(), limiter=ADMITTING)
    return Response()


async def describe(request: Request) -> Response:
    """Say, as RFC 9728 does, which provider vouches for people here, and as which client a command line asks it."""
    provider = _sign_on(request).provider
    about = {"resource": provider.url, "authorization_servers": [provider.issuer]}
    return json_response({**about, "client_id": provider.device or provider.client, "scopes_supported": ["openid"]})


DOORS = (
    Door("GET", SIGN_ON, (), begin, "Sign in with the provider", 303, media=HTML, hidden=True),
    Door("GET", RETURN, (), finish, "Back from the provider", media=HTML, hidden=True),
    Door("POST", SIGN_OUT, (), sign_out, "Who signed out at the provider", hidden=True),
    Door("GET", f"{SIGN_ON}/provider", (), describe, "Who vouches for people here", hidden=True),
)
