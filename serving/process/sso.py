"""Single sign-on: people who a provider of OpenID Connect vouches for, and what is granted to them and their groups.

DPSERVE_SSO names the provider. A token of it that is good makes its bearer the principal `sso:ISSUER person SUB`, who
may what grants say of that one, and of `sso:ISSUER group NAME` for each group in the token. Grants are entries, so an
auditor reads what each group could do; the address of the provider is part of the name, and another one gives nothing.

Nothing is kept of a person but the token's sha256, in memory, for CHECKED_SECONDS. A token is good for as long as it
says, and not longer than `seconds` after the provider made it: who has left can do nothing from then on.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from accountant.access.grants import Access
from accountant.access.tokens import Token
from accountant.system.bounded_http import exchange
from accountant.system.lazy_import import later
from dpserve_verify.entries.access import check_principal
from dpserve_verify.errors import DpserveError
from serving.process.config.provider import Provider, check_address
from serving.process.tokens import Bearer, Rights, digest
from serving.wire.errors import NotReady, Unauthorized

if TYPE_CHECKING:
    from authlib.integrations import httpx_client
    from joserfc import errors as jose_errors
    from joserfc import jwk, jwt
else:
    httpx_client, jose_errors = later("authlib.integrations.httpx_client"), later("joserfc.errors")
    jwk, jwt = later("joserfc.jwk"), later("joserfc.jwt")

LOG = logging.getLogger("dpserve.serving")
PERSON, GROUP = "person", "group"
TYPES = ("", "jwt", "at+jwt", "application/at+jwt")  # of a token; what says that somebody logged out is of another
MOST_TOKEN = 8192  # bytes
MOST_DOCUMENT = 1 << 18
ASK_SECONDS = 3.0  # that the provider has for an answer
CHECKED_SECONDS = 60.0  # after which a token's signature is looked at anew
KEYS_SECONDS, AWAY_SECONDS, PAUSE_SECONDS = 60.0, 600.0, 5.0  # keys are asked for anew; are good no more; between tries
SKEW_SECONDS = 10  # that the provider's clock may be ahead
MOST_PEOPLE = 10_000
NOBODY = "Authorization: this token of the provider is not good here, or not any more"


@dataclass(frozen=True)
class Person:
    """Somebody whom the provider vouches for until a second of 1970's. `principals`: they, then their groups."""

    token: Token
    principals: tuple[str, ...]
    until: float


@dataclass(frozen=True)
class Attempt:
    """A sign-in that a browser began: what must come back, and what the provider is shown."""

    state: str
    nonce: str
    verifier: str


class SingleSignOn:
    """Checks tokens of one provider. `bearer` only looks at what was checked; whatever else blocks."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._lock = threading.Lock()
        self._keys: jwk.KeySet | None = None
        self._facts: Mapping[str, Any] = {}
        self._asked = self._seen = float("-inf")
        self._people: dict[str, tuple[Person, float]] = {}

    def bearer(self, name: str, rights: Rights) -> Bearer | None:
        """Return who bears the token of this sha256, with what is granted now; None where it was not checked lately."""
        person, until = self._people.get(name, (None, 0.0))
        if person is None or time.monotonic() > until or time.time() >= person.until:
            return None
        held = chain.from_iterable(rights.granted.get(principal, ()) for principal in person.principals)
        return Bearer(person.token, Access(person.token.principal, tuple(held), rights.families))

    def admit(self, secret: bytes) -> None:
        """Check a token, so that `bearer` knows it. Unauthorized where it is not good, NotReady where the provider's
        keys cannot be had.
        """
        person = self.check(secret)
        with self._lock:
            if len(self._people) >= MOST_PEOPLE:
                self._people.clear()
            self._people[digest(secret)] = person, time.monotonic() + CHECKED_SECONDS

    def check(self, secret: bytes, nonce: str | None = None) -> Person:
        """Return whom a token is of. `nonce`: it is the answer to a sign-in of pages that had this one."""
        try:
            if len(secret) > MOST_TOKEN:
                raise ValueError("size")
            claims = self._signed(secret)
            self._check_claims(claims, nonce)
            return self._person(claims, digest(secret))
        except (NotReady, Unauthorized):
            raise
        except (jose_errors.JoseError, DpserveError, ValueError, TypeError, RecursionError, OverflowError) as error:
            LOG.info("a token of the provider was refused: %s", type(error).__name__)  # its words may hold a claim
            raise Unauthorized(NOBODY) from None

    def _signed(self, secret: bytes) -> dict[str, Any]:
        """Return the claims of a token, once its one signature is by the key that it names, and a known one."""
        wanted: Any = {"alg": self.provider.algorithm, "use": "sig"}

        def key_of(header: Any) -> Any:
            found, kid = header.headers(), header.headers().get("kid")
            if str(found.get("typ", "")).lower() not in TYPES or not (kid is None or isinstance(kid, str)):
                raise ValueError("header")
            try:
                return self._published(anew=False).get_by_kid(kid, wanted)
            except jose_errors.InvalidKeyIdError:  # a new one
                return self._published(anew=True).get_by_kid(kid, wanted)

        return dict(jwt.decode(secret, key_of, algorithms=[self.provider.algorithm]).claims)

    def _check_claims(self, claims: dict[str, Any], nonce: str | None) -> None:
        """Raise what `check` catches unless the claims are of this provider, for us, and of this time."""
        about: Any = {name: {"essential": True} for name in ("exp", "iat", "sub")}
        about |= {"iss": {"essential": True, "value": self.provider.issuer}}
        about |= {"aud": {"essential": True, "values": self.provider.audiences}}
        jwt.JWTClaimsRegistry(leeway=SKEW_SECONDS, **about).validate(claims)
        if "events" in claims or self._end(claims) <= time.time():
            raise ValueError("exp")
        if nonce is not None:
            is_ours = claims.get("azp", self.provider.client) == self.provider.client
            if not is_ours or not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
                raise ValueError("nonce")

    def _end(self, claims: Mapping[str, Any]) -> float:
        return float(min(claims["exp"], claims["iat"] + self.provider.seconds))

    def _person(self, claims: Mapping[str, Any], name: str) -> Person:
        groups = claims.get(self.provider.groups) or []
        if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
            raise ValueError("groups")
        principal = check_principal(self.provider.named(PERSON, claims["sub"]))
        held = (self.provider.named(GROUP, each) for each in groups)
        token = Token(principal, (), name, 0, principal=principal)  # entry 0 made no token: no schedule is theirs
        return Person(token, (principal, *dict.fromkeys(held)), self._end(claims))

    def _published(self, anew: bool) -> jwk.KeySet:
        """Return the provider's keys; asked for where they are older than KEYS_SECONDS, or `anew`, and not too often.
        NotReady where there are none of the last AWAY_SECONDS.
        """
        with self._lock:
            now = time.monotonic()
            if (anew or now - self._seen > KEYS_SECONDS) and now - self._asked > PAUSE_SECONDS:
                self._asked = now
                try:
                    self._ask_keys()
                except (DpserveError, jose_errors.JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
                    LOG.error("single sign-on: keys of %s: %s", self.provider.issuer, type(error).__name__)
            if self._keys is None or time.monotonic() - self._seen > AWAY_SECONDS:
                raise NotReady("the provider of sign-ins does not answer; tokens of dpserve are good")
            return self._keys

    def _ask_keys(self) -> None:
        facts = _document(f"{self.provider.issuer.rstrip('/')}/.well-known/openid-configuration")
        if facts["issuer"] != self.provider.issuer:
            raise ValueError("issuer")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            check_address(name, facts[name])
        keys = jwk.KeySet.import_key_set({"keys": list(_document(facts["jwks_uri"])["keys"])})
        if self._keys is not None and {key.kid for key in self._keys} - {key.kid for key in keys}:
            self._people.clear()  # what a key that is gone has signed is good no more
        self._facts, self._keys, self._seen = facts, keys, time.monotonic()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return what the provider says of itself. NotReady where it does not answer."""
        self._published(anew=False)
        return self._facts

    def address(self, attempt: Attempt) -> str:
        """Return where a browser signs in."""
        with self._client() as client:
            more = {"state": attempt.state, "nonce": attempt.nonce, "code_verifier": attempt.verifier}
            return str(client.create_authorization_url(self.facts["authorization_endpoint"], **more)[0])

    def redeem(self, attempt: Attempt, code: str) -> tuple[str, Person]:
        """Return the ID token that the provider gives for a code, and its person. Unauthorized where it gives none."""
        endpoint = self.facts["token_endpoint"]
        try:
            with self._client() as client:
                answer = client.fetch_token(
                    endpoint, code=code, code_verifier=attempt.verifier, grant_type="authorization_code"
                )
            token = str(answer["id_token"])
        except Exception as error:  # Authlib's, and those of the library that it asks by
            LOG.info("a sign-in was refused: %s", type(error).__name__)
            raise Unauthorized(NOBODY) from None
        return token, self.check(token.encode(), attempt.nonce)

    def _client(self) -> httpx_client.OAuth2Client:
        secret = Path(self.provider.secret).read_text("utf-8").strip() if self.provider.secret else None
        method = "client_secret_basic" if secret else "none"
        return httpx_client.OAuth2Client(
            self.provider.client, secret, scope="openid", redirect_uri=self.provider.back, timeout=ASK_SECONDS,
            code_challenge_method="S256", token_endpoint_auth_method=method,
        )  # fmt: skip


def _document(url: str) -> Any:
    parts = urlsplit(url)
    reply = exchange(parts, "GET", parts.path, None, {"Accept": "application/json"}, ASK_SECONDS, MOST_DOCUMENT)
    if reply.status != 200:
        raise ValueError("status")
    return json.loads(reply.body)
