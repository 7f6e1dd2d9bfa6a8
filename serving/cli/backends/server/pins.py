"""The keys of a server: given, or pinned on first use; what was pinned is not replaced by what the server says later.

With them goes the last checkpoint of its ledger that was seen here: at each contact the ledger must continue it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from dpserve import Client, ServiceError
from dpserve_verify.errors import InputError, KeyInvalid, LedgerUnavailable, OtherHistory
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import parse_checkpoint
from dpserve_verify.log.seen_checkpoints import SeenCheckpoints, read_growth
from dpserve_verify.log.witness_policy import read_witness_policy
from dpserve_verify.system.files import PRIVATE, replace_file
from serving.cli.backends.abstract import Note
from serving.cli.backends.choice import ServerAddress, config_folder

KEYS = "trust.json"
TRIES = 5  # another command may see more between the question and the answer


class Pins:
    """What this user knows of one server. One check lasts for the command.

    Args:
        address: The server.
        note: Prints a line for the user.
    """

    def __init__(self, address: ServerAddress, note: Note) -> None:
        self.address = address
        self.note = note
        self.folder = config_folder() / "servers" / quote(address.url, safe="")
        self._checked: PublicKeys | None = None

    def exist(self) -> bool:
        """Return whether keys of the server were pinned."""
        return (self.folder / KEYS).exists()

    def check(self, service: Client, given: PublicKeys | None = None) -> PublicKeys:
        """Return the keys to check the server by.

        Its ledger must continue what was seen of it here, and be cosigned by the witnesses that are named, if any.

        Args:
            service: The server.
            given: A copy of its keys that came another way, which is pinned.

        Raises:
            KeyInvalid: The server names keys that are not the pinned ones: who rotated them says so elsewhere.
            OtherHistory, LedgerInvalid: Its ledger does not continue what was seen, or lacks the quorum.
        """
        if given is None and self._checked is not None:
            return self._checked
        offered = PublicKeys.from_json(service.trust())
        pinned = given or self._read_pinned()
        if pinned is None:
            self.note(f"The keys of {self.address.url} were not pinned here. On first use they are taken as they are:")
            self.note("\n".join(f"  {name}" for name in key_names(offered)))
            self.note(
                "Compare them with a copy that came another way, or give one: dpserve login URL --trust trust.json"
            )
        elif key_names(offered) != key_names(pinned) or not (offered == pinned or offered.continues(pinned)):
            raise KeyInvalid(
                f"{self.address.url}: names other keys than those that were pinned: {', '.join(key_names(offered))}. "
                "After a rotation get the new trust.json another way, and pin it: dpserve login URL --trust trust.json"
            )
        self._advance(service, offered)
        self._checked = offered
        if given is not None or offered != pinned:  # where it has changed: a key was ended, or a certificate revoked
            for folder in (config_folder(), self.folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.folder / KEYS, offered.to_json(), PRIVATE)
        return offered

    def seen_checkpoints(self) -> SeenCheckpoints:
        """Return the checkpoints that this user has seen of any ledger, and the witnesses that are asked for."""
        policy = self.address.witnesses
        return SeenCheckpoints(config_folder() / "checkpoints", read_witness_policy(Path(policy)) if policy else None)

    def _advance(self, service: Client, keys: PublicKeys) -> None:
        """Keep the newest checkpoint of the server's ledger, once it continues the last one seen here."""
        checkpoints = self.seen_checkpoints()
        for _ in range(TRIES):
            before = checkpoints.read(keys)
            text = service.checkpoint(witnessed=checkpoints.witnesses is not None)
            size, growth = parse_checkpoint(text).size, None
            if before is None:
                self.note(
                    f"The ledger of {self.address.url} was not seen here before; its checkpoint of {size} entries is "
                    "kept."
                )
            elif size != before.head.size:
                with suppress(ServiceError):  # what comes without a proof is refused
                    growth = read_growth(service.consistency(*sorted((size, before.head.size))))
            try:
                checkpoints.advance(text, keys, growth)
                return
            except OtherHistory:
                if checkpoints.read(keys) == before:
                    raise
        raise LedgerUnavailable(f"{self.address.url}: its ledger grew at each of {TRIES} tries; try again")

    def _read_pinned(self) -> PublicKeys | None:
        file = self.folder / KEYS
        try:
            return PublicKeys.from_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from None


def key_names(keys: PublicKeys) -> list[str]:
    """Return every key by its role and fingerprint."""
    roles = {"issuer": [key.keyid for key in keys.issuers], "log": [key.keyid for key in keys.logs]}
    return sorted(f"{role} {keyid}" for role, keyids in roles.items() for keyid in keyids)
