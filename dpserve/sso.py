"""Single sign-on for programs and command lines: by a device flow (RFC 8628) with the provider that a service names.

    session = sign_in("https://dp.example.org", print)
    with Client("https://dp.example.org", auth=session) as service:
        ...

The service never sees what renews the token; the provider never sees what the service is asked.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from dpserve.errors import NotAllowed, ServiceError
from dpserve.transport import strip_token

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_ENDPOINT = "device_authorization_endpoint"
PROVIDER = "/ui/sso/provider"
RENEW_SECONDS = 30.0  # before its end a token is renewed
FIRST_WAIT = 5.0  # between two questions whether somebody signed in; a provider may say another
MOST_SECONDS = 900.0  # for which somebody may take their time
TIMEOUT = 10.0
Say = Callable[[str], None]


@dataclass
class Session(httpx.Auth):
    """A token, and what renews it: gives `Client(url, auth=session)` a good one with every request.

    Attributes:
        client: As whom the provider knows who asks. `endpoint`: where it renews.
        token: What the service is shown. `refresh`: what the provider is shown; "": nothing renews it.
        keep: Is called with the session after each renewal, to store it.
    """

    client: str
    endpoint: str
    token: str
    refresh: str = ""
    keep: Callable[[Session], None] = field(default=lambda session: None, repr=False)

    def to_json(self) -> dict[str, str]:
        """Return what `Session(**it)` makes again: a secret."""
        return {name: getattr(self, name) for name in ("client", "endpoint", "token", "refresh")}

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put a good token into a request."""
        request.headers["Authorization"] = f"Bearer {self.good_token()}"
        yield request

    def good_token(self) -> str:
        """Return a token that is not about to end. NotAllowed where the provider renews it no more."""
        if end_of(self.token) - time.time() < RENEW_SECONDS and self.refresh:
            self._take(_ask(self.client, self.endpoint, grant_type="refresh_token", refresh_token=self.refresh))
            self.keep(self)
        return self.token

    def _take(self, answer: Mapping[str, Any]) -> None:
        given = answer.get("id_token") or answer.get("access_token")
        self.token, self.refresh = strip_token(str(given)), str(answer.get("refresh_token") or self.refresh)


def end_of(token: str) -> float:
    """Return the second of 1970's at which a token ends, by its own words, which the service checks; 0 where it has
    none.
    """
    try:
        part = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"])
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return 0.0


def sign_in(url: str, say: Say, **options: Any) -> Session:
    """Have somebody sign in with the provider that the service at `url` names, in a browser wherever they have one.

    Args:
        url: The service.
        say: Is told where to sign in, and the code to type there.
        options: For httpx.Client, as `Client` takes them; they are for the service and the provider both.

    Raises:
        NotAllowed: Nobody signed in in time, or the provider refuses.
        ServiceError: The service has no single sign-on, or somebody does not answer.
    """
    with httpx.Client(timeout=TIMEOUT, **options) as http:
        about = _get(http, url.rstrip("/") + PROVIDER)
        issuer, client = _safe(about["authorization_servers"][0]), str(about["client_id"])
        facts = _get(http, issuer.rstrip("/") + "/.well-known/openid-configuration")
    if facts.get("issuer") != issuer or DEVICE_ENDPOINT not in facts:
        raise ServiceError(0, "bad_answer", f"{issuer}: has no device flow; make a token: dpserve token create")
    asked = _ask(client, _safe(facts[DEVICE_ENDPOINT]), scope="openid")
    say(f"Sign in at {asked['verification_uri']} with the code {asked['user_code']}")
    session = Session(client, _safe(facts["token_endpoint"]), "")
    session._take(_wait(session, str(asked["device_code"]), asked))
    if session.refresh and end_of(session.token) == 0.0:
        session.good_token()
    return session


def _wait(session: Session, code: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    wait = max(1.0, min(60.0, float(asked.get("interval") or FIRST_WAIT)))
    end = time.monotonic() + min(MOST_SECONDS, float(asked.get("expires_in") or MOST_SECONDS))
    while time.monotonic() < end:
        time.sleep(wait)
        try:
            return _ask(session.client, session.endpoint, grant_type=DEVICE, device_code=code)
        except ServiceError as error:
            if error.code not in ("authorization_pending", "slow_down", "unreachable"):
                raise
            wait += 0.0 if error.code == "authorization_pending" else 5.0
    raise NotAllowed(401, "expired_token", "nobody signed in in time; begin again")


def _ask(client: str, endpoint: str, **fields: str) -> Mapping[str, Any]:
    """Ask the provider as a public client, by Authlib. NotAllowed with the provider's own code where it refuses."""
    try:
        from authlib.common.errors import AuthlibBaseError
        from authlib.integrations.httpx_client import OAuth2Client
    except ModuleNotFoundError:
        raise ServiceError(0, "not_installed", "single sign-on takes: pip install 'dpserve-*.whl[sso]'") from None
    try:
        with OAuth2Client(client, token_endpoint_auth_method="none", timeout=TIMEOUT) as session:
            if "scope" in fields:
                about = {"client_id": client, **fields}
                answer = session.request("POST", endpoint, data=about, withhold_token=True)
                answer.raise_for_status()
                return dict(answer.json())
            return dict(session.fetch_token(endpoint, **fields))
    except AuthlibBaseError as error:
        raise NotAllowed(
            401, str(error.error), f"the provider refuses: {str(error.error)[:40]}; sign in again"
        ) from None
    except Exception as error:  # of the library that Authlib asks by, whose words may hold an address
        raise ServiceError(0, "unreachable", f"the provider does not answer: {type(error).__name__}") from None


def _get(http: httpx.Client, url: str) -> dict[str, Any]:
    try:
        answer = http.get(url)
        if answer.status_code != 200:
            raise ServiceError(answer.status_code, "unknown_name", f"{urlsplit(url).netloc}: has no single sign-on")
        return dict(answer.json())
    except (httpx.HTTPError, ValueError, TypeError) as error:
        raise ServiceError(0, "unreachable", f"{urlsplit(url).netloc}: no answer: {type(error).__name__}") from None


def _safe(url: str) -> str:
    """Return an address that is https, or of this machine. ServiceError for any other: a token would be read there."""
    parts = urlsplit(str(url))
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")):
        return str(url)
    raise ServiceError(0, "bad_answer", f"{str(url)[:80]!r}: must be an https address")
