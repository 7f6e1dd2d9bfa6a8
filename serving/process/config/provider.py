"""The provider of single sign-on: the setting that names it."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from accountant.system.bounded_http import is_this_machine
from accountant.system.lazy_import import require
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import whole_number

VARIABLE = "DPSERVE_SSO"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SECONDS, LEAST_SECONDS, MOST_SECONDS = 600, 60, 3600


@dataclass(frozen=True)
class Provider:
    """What DPSERVE_SSO says: `https://ISSUER?client=ID&url=https://dp.example.org` and more of these.

    Attributes:
        issuer: Its address, as tokens spell it.
        client: As whom the pages ask it. `device`: as whom command lines do; `audience`: whom tokens may also be for.
        url: Where browsers find this server.
        secret: The file of the client's secret; none for a public client.
        groups: The claim that lists a person's groups.
        algorithm: The one by which it signs.
        seconds: For how long at most a token is good.
    """

    issuer: str
    client: str
    url: str
    device: str = ""
    audience: str = ""
    secret: str = ""
    groups: str = "groups"
    algorithm: str = "RS256"
    seconds: int = SECONDS

    @classmethod
    def of(cls, text: str) -> Self:
        """Read the setting. InputError, which names what is wrong with it, where it is none."""
        try:
            return cls._of(text)
        except InputError as error:
            raise InputError(f"{VARIABLE}={text[:60]!r}: {error.message}") from None

    @classmethod
    def _of(cls, text: str) -> Self:
        try:
            parts = urlsplit(text)
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True, max_num_fields=9)
        except ValueError:
            raise InputError(
                "must be the provider's address, and ?client=ID&url=ADDRESS of this server behind it"
            ) from None
        said = dict(pairs)
        known = {each.name for each in fields(cls)} - {"issuer"}
        if len(said) != len(pairs) or not said.keys() <= known or not all(said.values()):
            raise InputError(f"each of {sorted(known)} may stand once in it, with a value")
        issuer, url = urlunsplit((*parts[:3], "", parts.fragment)), said.pop("url", "").rstrip("/")
        check_address("issuer", issuer)
        check_address("url", url)
        if urlsplit(url).path or "client" not in said:
            raise InputError("client must be the id that the provider gave, and url an address without a path")
        seconds = whole_number(said.pop("seconds", str(SECONDS)), MOST_SECONDS)
        if seconds is None or seconds < LEAST_SECONDS:
            raise InputError(f"seconds must be a whole number, {LEAST_SECONDS} to {MOST_SECONDS}")
        if said.get("algorithm", "RS256") not in ALGORITHMS:
            raise InputError(f"algorithm must be one of {', '.join(ALGORITHMS)}")
        if "secret" in said and not Path(said["secret"]).is_file():
            raise InputError("secret must be the file of the client's secret")
        require("authlib")
        return cls(issuer, url=url, seconds=seconds, **said)

    @property
    def back(self) -> str:
        """Return where the provider sends a browser back to."""
        return f"{self.url}/ui/sso/back"

    @cached_property
    def audiences(self) -> list[str]:
        """Return whom a token may be for: one of these."""
        return [each for each in dict.fromkeys((self.client, self.device, self.audience)) if each]

    def named(self, kind: str, name: str) -> str:
        """Return the principal of a person or a group, as grants spell it."""
        return f"sso:{self.issuer} {kind} {name}"


def check_address(what: str, address: str) -> None:
    """Raise InputError unless it is an https address (http on this machine alone) with nothing but host and path."""
    parts = urlsplit(address)
    is_plain = re.fullmatch(r"[!-~]{1,160}", address) and parts.hostname and not (parts.query or parts.fragment)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(parts.hostname))
    if not (is_plain and is_safe) or "@" in parts.netloc:
        raise InputError(f"{what} must be an https address of at most 160 characters, without a query and a password")
