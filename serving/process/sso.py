"""Single sign-on: people who a provider of OpenID Connect vouches for, and what is granted to them and their groups.

DPSERVE_SSO names the provider. A token of it that is good makes its bearer the principal `sso:ISSUER person SUB`, who
may what grants say of that one, and of `sso:ISSUER group NAME` for each group in the token. Grants are entries, so an
auditor reads what each group could do; the address of the provider is part of the name, and another one gives nothing.

Nothing is kept of a person but the token's sha256, in memory, for CHECKED_SECONDS. A token is good for as long as it
says, and not longer than `seconds` after the provider made it: who has left can do nothing from then on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hmac import compare_digest
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.access.grants import Access
from accountant.access.tokens import Token
from accountant.system.lazy_import import later
from dpserve_verify.entries.access import check_principal
from dpserve_verify.errors import DpserveError, InputError
from serving.process.config.provider import Provider
from serving.process.provider_keys import ASK_SECONDS, ProviderKeys
from serving.process.sign_outs import SignOuts
from serving.process.tokens import Bearer, Rights, digest
from serving.wire.errors import NotReady, Unauthorized

if TYPE_CHECKING:
    from authlib.integrations import httpx_client
    from joserfc import errors as jose_errors
    from joserfc import jwt
else:
    httpx_client, jose_errors = later("authlib.integrations.httpx_client"), later("joserfc.errors")
    jwt = later("joserfc.jwt")

LOG = logging.getLogger("dpserve.serving")
PERSON, GROUP, SESSION = "person", "group", "session"
TYPES = ("", "jwt", "at+jwt", "application/at+jwt")  # of a token
LOGOUT_TYPES = ("", "jwt", "logout+jwt", "application/logout+jwt")
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
MOST_TOKEN = 8192  # bytes
CHECKED_SECONDS = 60.0  # after which a token's signature is looked at anew
SKEW_SECONDS = 10  # that the provider's clock may be ahead
MOST_PEOPLE = 10_000
NOBODY = "Authorization: this token of the provider is not good here, or not any more"
NO_LOGOUT = "logout_token: is not by the provider of sign-ins, for us, of now and new, or does not say who signed out"


@dataclass(frozen=True)
class Person:
    """Somebody whom the provider vouches for, from `made` until a second of 1970's.

    Attributes:
        principals: They, then their groups.
        names: By which the provider may say that they signed out, and the name of this token alone.
        key: The thumbprint of the key that says so.
    """

    token: Token
    principals: tuple[str, ...]
    names: tuple[str, ...]
    made: float
    until: float
    key: str


@dataclass(frozen=True)
class Attempt:
    """A sign-in that a browser began: what must come back, and what the provider is shown."""

    state: str
    nonce: str
    verifier: str


def name_of_token(sha256: str) -> str:
    """Return by which name one token ends alone."""
    return f"token {sha256}"


class SingleSignOn:
    """Checks tokens of one provider. `bearer` only looks at what was checked; whatever else blocks. `home`: whose
    serving processes share who signed out.
    """

    def __init__(self, provider: Provider, home: Path) -> None:
        self.provider = provider
        self.keys = ProviderKeys(provider)
        self._sign_outs = SignOuts(home, provider.seconds)
        self._people: dict[str, tuple[Person, float]] = {}

    def bearer(self, name: str, rights: Rights) -> Bearer | None:
        """Return who bears the token of this sha256, with what is granted now; None where it was not checked lately,
        its key was withdrawn, or they signed out. NotReady as `SignOuts.have`.
        """
        person, until = self._people.get(name, (None, 0.0))
        if person is None or time.monotonic() > until or time.time() >= person.until:
            return None
        if not self.keys.has(person.key) or self._sign_outs.have(person.names, person.made):
            return None
        held = chain.from_iterable(rights.granted.get(principal, ()) for principal in person.principals)
        return Bearer(person.token, Access(person.token.principal, tuple(held), rights.families))

    def admit(self, secret: bytes) -> None:
        """Check a token, so that `bearer` knows it. Unauthorized where it is not good, NotReady where the provider's
        keys cannot be had.
        """
        person = self.check(secret)
        if len(self._people) >= MOST_PEOPLE:
            self._people.clear()
        self._people[digest(secret)] = person, time.monotonic() + CHECKED_SECONDS

    def check(self, secret: bytes, nonce: str | None = None) -> Person:
        """Return whom a token is of. `nonce`: it is the answer to a sign-in of pages that had this one."""
        with _judging("token", Unauthorized(NOBODY)):
            claims, key = self._claims(secret, TYPES)
            if "events" in claims or "sub" not in claims:
                raise ValueError("events, sub")
            if nonce is not None:
                is_ours = claims.get("azp", self.provider.client) == self.provider.client
                if not is_ours or not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
                    raise ValueError("nonce")
            person = self._person(claims, digest(secret), key)
            if self._sign_outs.have(person.names, person.made):
                raise ValueError("signed out")
            return person

    def end(self, secret: bytes) -> None:
        """End one token, in all serving processes of the home. Unauthorized where it is not good, or ended before."""
        person = self.check(secret)
        with _judging("token", Unauthorized(NOBODY)):
            self._sign_outs.end((), person.made, name_of_token(digest(secret)))

    def sign_out(self, secret: bytes) -> None:
        """End, in all serving processes of the home, what the provider made before a logout token of it for whom it
        names (OpenID Connect Back-Channel Logout 1.0, 2.4 and 2.6). InputError where it is not good, or came before.
        """
        with _judging("logout token", InputError(NO_LOGOUT)):
            claims, _ = self._claims(secret, LOGOUT_TYPES)
            events, once = claims.get("events"), claims.get("jti")
            if not (isinstance(events, dict) and isinstance(events.get(LOGOUT), dict)) or "nonce" in claims:
                raise ValueError("events")
            names = self._names(claims)
            if not (names and once and isinstance(once, str)):
                raise ValueError("jti, sub or sid")
            self._sign_outs.end(names, claims["iat"], f"logout {once}")

    def _claims(self, secret: bytes, types: Collection[str]) -> tuple[dict[str, Any], str]:
        """Return the claims of a token of one of these types, once its one signature is by the key that it names, a
        known one, and it is of this provider, for us, and of this time; and the key's thumbprint.
        """
        if len(secret) > MOST_TOKEN:
            raise ValueError("size")
        wanted: Any = {"alg": self.provider.algorithm, "use": "sig"}
        signer = ""

        def key_of(header: Any) -> Any:
            nonlocal signer
            found, kid = header.headers(), header.headers().get("kid")
            if str(found.get("typ", "")).lower() not in types or not (kid is None or isinstance(kid, str)):
                raise ValueError("header")
            try:
                key = self.keys.published().keys.get_by_kid(kid, wanted)
            except jose_errors.InvalidKeyIdError:  # a new one
                key = self.keys.published(anew=True).keys.get_by_kid(kid, wanted)
            signer = key.thumbprint()
            return key

        claims = dict(jwt.decode(secret, key_of, algorithms=[self.provider.algorithm]).claims)
        about: Any = {name: {"essential": True} for name in ("exp", "iat")}
        about |= {"iss": {"essential": True, "value": self.provider.issuer}}
        about |= {"aud": {"essential": True, "values": self.provider.audiences}}
        jwt.JWTClaimsRegistry(leeway=SKEW_SECONDS, **about).validate(claims)
        if not (isfinite(claims["exp"]) and isfinite(claims["iat"]) and time.time() < self._end(claims)):
            raise ValueError("exp")
        return claims, signer

    def _end(self, claims: Mapping[str, Any]) -> float:
        return float(min(claims["iat"] + self.provider.seconds, claims["exp"]))

    def _names(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the person and of the session at the provider that claims have: both, one, or none."""
        said = {kind: claims[claim] for kind, claim in ((PERSON, "sub"), (SESSION, "sid")) if claim in claims}
        if not all(name and isinstance(name, str) for name in said.values()):
            raise ValueError("sub, sid")
        if "sub" in claims:
            check_principal(self.provider.named(PERSON, claims["sub"]))
        return tuple(self.provider.named(kind, name) for kind, name in said.items())

    def _person(self, claims: Mapping[str, Any], name: str, key: str) -> Person:
        groups = claims.get(self.provider.groups) or []
        if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
            raise ValueError("groups")
        principal, *_ = names = *self._names(claims), name_of_token(name)
        held = (self.provider.named(GROUP, each) for each in groups)
        token = Token(principal, (), name, 0, principal=principal)  # entry 0 made no token: no schedule is theirs
        principals = (principal, *dict.fromkeys(held))
        return Person(token, principals, names, claims["iat"], self._end(claims), key)

    def address(self, attempt: Attempt) -> str:
        """Return where a browser signs in."""
        endpoint = self.keys.published().facts["authorization_endpoint"]
        with self._client() as client:
            more = {"state": attempt.state, "nonce": attempt.nonce, "code_verifier": attempt.verifier}
            return str(client.create_authorization_url(endpoint, **more)[0])

    def redeem(self, attempt: Attempt, code: str) -> tuple[str, Person]:
        """Return the ID token that the provider gives for a code, and its person. Unauthorized where it gives none."""
        endpoint = self.keys.published().facts["token_endpoint"]
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


@contextmanager
def _judging(what: str, refusal: DpserveError) -> Iterator[None]:
    """Raise `refusal` for all that is wrong with what the caller sent."""
    try:
        yield
    except NotReady:
        raise
    except (jose_errors.JoseError, DpserveError, ValueError, TypeError, RecursionError, OverflowError) as error:
        LOG.info("a %s of the provider was refused: %s", what, type(error).__name__)  # its words may hold a claim
        raise refusal from None
