"""What a provider of single sign-on publishes: its keys, and its addresses.

One thread at a time asks; all others go by what is known meanwhile, so a provider that is slow, or tokens of keys that
there are not, keep nobody waiting. Only while nothing good is known is who asks waited for.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from accountant.system.bounded_http import exchange
from accountant.system.lazy_import import later
from dpserve_verify.errors import DpserveError
from serving.process.config.provider import Provider, check_address
from serving.wire.errors import NotReady

if TYPE_CHECKING:
    from joserfc import errors as jose_errors
    from joserfc import jwk
else:
    jose_errors, jwk = later("joserfc.errors"), later("joserfc.jwk")

LOG = logging.getLogger("dpserve.serving")
ASK_SECONDS = 3.0  # that the provider has for an answer
KEYS_SECONDS, AWAY_SECONDS, PAUSE_SECONDS = 60.0, 600.0, 5.0  # keys are asked for anew; are good no more; between tries
MOST_DOCUMENT = 1 << 18  # bytes


@dataclass(frozen=True)
class Published:
    """What the provider published at `seen`, of the monotonic clock. `names`: the thumbprints of its keys."""

    facts: Mapping[str, Any]
    keys: jwk.KeySet
    names: frozenset[str]
    seen: float

    @property
    def age(self) -> float:
        """Return the seconds since it was seen."""
        return monotonic() - self.seen


class ProviderKeys:
    """The keys of one provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._asking = threading.Lock()
        self._asked = float("-inf")  # when the last answer came, or did not
        self._known: Published | None = None

    def published(self, anew: bool = False) -> Published:
        """Return what the provider published last: asked for where that is older than KEYS_SECONDS, or `anew`, by one
        thread, and not within PAUSE_SECONDS of the last answer. NotReady where there is nothing of the last
        AWAY_SECONDS.
        """
        known = self._known
        is_good = known is not None and known.age <= AWAY_SECONDS
        is_new = known is not None and known.age <= KEYS_SECONDS and not anew
        if not is_new and self._asking.acquire(blocking=not is_good):
            try:
                if self._known is known and monotonic() - self._asked > PAUSE_SECONDS:
                    self._ask()
            finally:
                self._asking.release()
        if self._known is None or self._known.age > AWAY_SECONDS:
            raise NotReady("the provider of sign-ins does not answer; tokens of dpserve are good")
        return self._known

    def has(self, key: str) -> bool:
        """Return whether the key of this thumbprint is among those that were published last."""
        return self._known is not None and key in self._known.names

    def _ask(self) -> None:
        issuer = self._provider.issuer
        try:
            facts = _document(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if facts["issuer"] != issuer:
                raise ValueError("issuer")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                check_address(name, facts[name])
            keys = jwk.KeySet.import_key_set({"keys": list(_document(facts["jwks_uri"])["keys"])})
            self._known = Published(facts, keys, frozenset(key.thumbprint() for key in keys), monotonic())
        except (DpserveError, jose_errors.JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            LOG.error("single sign-on: keys of %s: %s", issuer, type(error).__name__)
        finally:
            self._asked = monotonic()


def _document(url: str) -> Any:
    parts = urlsplit(url)
    reply = exchange(parts, "GET", parts.path, None, {"Accept": "application/json"}, ASK_SECONDS, MOST_DOCUMENT)
    if reply.status != 200:
        raise ValueError("status")
    return json.loads(reply.body)
