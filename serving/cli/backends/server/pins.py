"""The keys of a server: given, or pinned on first use; what was pinned is not replaced by what the server says later.

With them goes the last checkpoint of its ledger that was seen here: at each contact the ledger must continue it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote
from weakref import WeakKeyDictionary

from accountant.errors import InputError, KeyInvalid, LedgerUnavailable, OtherHistory
from accountant.keys.trust import PublicKeys
from accountant.log.notes import parse_checkpoint
from accountant.log.seen_checkpoints import SeenCheckpoints, read_growth, read_note
from accountant.log.witness_policy import read_witness_policy
from accountant.system.files import PRIVATE, replace_file
from dpserve import Client, ServiceError
from serving.cli.backends.choice import config_folder, kept_login, server
from serving.cli.terminal import note

KEYS, FIRST_FORM = "trust.json", "checkpoint"  # FIRST_FORM: of the last audit, as versions before kept it
TRIES = 5  # another command may see more between the question and the answer
WITNESSES = "DPSERVE_WITNESS_POLICY"
_believed: WeakKeyDictionary[Client, PublicKeys] = WeakKeyDictionary()  # one contact, one question


def pinned(
    service: Client, url: str | None = None, given: PublicKeys | None = None, witnesses: Path | None = None
) -> PublicKeys:
    """The keys to check a server by; `given`: a copy that came another way, which is pinned.

    Its ledger must continue what was seen of it here, and be cosigned by the `witnesses` that are named, if any.

    Raises:
        KeyInvalid: the server names keys that are not the pinned ones: who rotated them says so elsewhere.
        OtherHistory, LedgerInvalid: its ledger does not continue what was seen, or lacks the quorum.
    """
    if given is None and service in _believed:
        return _believed[service]
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
    believe_history(service, said, seen_checkpoints(witnesses), url)
    _believed[service] = said
    if given is not None or said != known:  # where it has changed: a key was ended, or a certificate revoked
        keep(KEYS, said.to_json(), url)
    return said


def has_pinned() -> bool:
    """Whether keys of the server that is asked were pinned here."""
    return (place() / KEYS).exists()


def seen_checkpoints(witnesses: Path | None = None) -> SeenCheckpoints:
    """What this user has seen of ledgers, whichever way it came; and the witnesses that are asked for: of this file,
    else DPSERVE_WITNESS_POLICY, else what the login names.
    """
    named = witnesses or os.environ.get(WITNESSES) or kept_login().get("witnesses")
    return SeenCheckpoints(config_folder() / "checkpoints", read_witness_policy(Path(named)) if named else None)


def believe_history(service: Client, keys: PublicKeys, seen: SeenCheckpoints, url: str | None = None) -> None:
    """Keep the newest checkpoint of the server's ledger, once it continues the last one seen here."""
    first = place(url) / FIRST_FORM
    if seen.read(keys) is None and first.exists():
        SeenCheckpoints(seen.folder).advance(read_note(first), keys)
    for _ in range(TRIES):
        before = seen.read(keys)
        text = service.checkpoint(witnessed=seen.witnesses is not None)
        size, growth = parse_checkpoint(text).size, None
        if before is None:
            note(f"The ledger of {url or _url()} was not seen here before; its checkpoint of {size} entries is kept.")
        elif size != before.head.size:
            with suppress(ServiceError):  # what comes without a proof is refused
                growth = read_growth(service.consistency(*sorted((size, before.head.size))))
        try:
            seen.advance(text, keys, growth)
            return
        except OtherHistory:
            if seen.read(keys) == before:
                raise
    raise LedgerUnavailable(f"{url or _url()}: its ledger grew at each of {TRIES} tries; try again")


def names(keys: PublicKeys) -> list[str]:
    """Every key by its role and fingerprint."""
    roles = {"issuer": [key.keyid for key in keys.issuers], "log": [key.keyid for key in keys.logs]}
    return sorted(f"{role} {keyid}" for role, found in roles.items() for keyid in found)


def keep(name: str, content: bytes, url: str | None = None) -> None:
    """Put a file beside the keys of a server; of the one that is asked where `url` is left out."""
    for folder in (config_folder(), place(url)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(place(url) / name, content, PRIVATE)


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
