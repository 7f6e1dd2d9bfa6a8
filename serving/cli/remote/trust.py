"""The keys of a server: given, or pinned on first use; what was pinned is not replaced by what the server says later.

Beside the keys stands the newest checkpoint that was audited: the next ledger must begin with it.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from accountant.errors import InputError, KeyInvalid
from accountant.files import PRIVATE, replace_file
from accountant.keys.trust import PublicKeys
from dpserve import Client
from serving.cli.remote.asking import asking
from serving.cli.side import config_folder, server
from serving.cli.terminal import note

KEYS, CHECKPOINT = "trust.json", "checkpoint"


def keys() -> PublicKeys:
    """The keys to check by: those that were pinned for the server, on first use those that it names."""
    with asking() as service:
        return pinned(service)


def pinned(service: Client, url: str | None = None, given: PublicKeys | None = None) -> PublicKeys:
    """As `keys`; `given`: a copy that came another way, which is pinned. KeyInvalid where the server names keys that
    are not the pinned ones: whoever rotated them says so elsewhere.
    """
    said = PublicKeys.from_json(service.trust())
    known = given or _kept(url)
    if known is None:
        note(f"The keys of {url or _url()} were not pinned here. On first use they are taken as it names them now:")
        note("\n".join(f"  {name}" for name in names(said)))
        note("Compare them with a copy that came another way, or give one: dpserve login URL --trust trust.json")
    elif names(said) != names(known) or not (said == known or said.continues(known)):
        raise KeyInvalid(
            f"{url or _url()}: names other keys than those that were pinned: {', '.join(names(said))}. After a "
            "rotation get the new trust.json another way, and pin it: dpserve login URL --trust trust.json"
        )
    if given is not None or said != known:  # where it has changed: a key was ended, or a certificate revoked
        keep(KEYS, said.to_json(), url)
    return said


def names(keys: PublicKeys) -> list[str]:
    """Every key by its role and fingerprint."""
    roles = {"issuer": [key.keyid for key in keys.issuers], "log": [key.keyid for key in keys.logs]}
    return sorted(f"{role} {keyid}" for role, found in roles.items() for keyid in found)


def keep(name: str, content: bytes, url: str | None = None) -> None:
    """Put a file beside the keys of a server; of the one that is asked where `url` is left out."""
    for folder in (config_folder(), place(url)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(place(url) / name, content, PRIVATE)


def seen() -> str | None:
    """The newest checkpoint that was audited here; None before the first."""
    file = place() / CHECKPOINT
    return file.read_text("utf-8") if file.exists() else None


def place(url: str | None = None) -> Path:
    """The folder of what is known of a server."""
    return config_folder() / "servers" / quote(url or _url(), safe="")


def _kept(url: str | None) -> PublicKeys | None:
    file = place(url) / KEYS
    try:
        return PublicKeys.from_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None


def _url() -> str:
    found = server()
    return "" if found is None else found.url
