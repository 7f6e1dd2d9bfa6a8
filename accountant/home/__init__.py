"""Where dpserve keeps its things, and which settings are in force and why."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from accountant.keys import key_exchange, opening
from accountant.keys.key_files import in_keys
from accountant.keys.private_keys import KeyStore
from accountant.ledger.ledger import Ledger
from accountant.ledger.schedules import MAX_OF_ONE
from accountant.log.entries import TransparencyLog
from accountant.log.last_seen import HighWater
from accountant.store import engines
from accountant.store.engines import without_secrets
from accountant.store.job_notifications import JobNotifications
from accountant.store.store import Store, Tables, size
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError, KeyInvalid, LedgerInvalid
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.system.files import replace_file
from dpserve_verify.system.user_folder import user_folder

if TYPE_CHECKING:
    from accountant.home import migration
    from accountant.keys import signers
else:
    migration = later("accountant.home.migration")
    signers = later("accountant.keys.signers")

DEFAULT_HOME = ".local/share/dpserve"
TRUST = "trust.json"


@dataclass(frozen=True)
class Setting:
    """One setting, its value and where it came from."""

    name: str
    value: str
    source: str

    @property
    def shown(self) -> str:
        """Return the value as it may be printed: secrets that an address can carry are hidden."""
        if self.name == "DPSERVE_LEDGER_URL":
            return without_secrets(self.value)
        if self.name == "DPSERVE_ISSUER_KEY":
            return re.sub(r"(?i)((?:pin|pass|secret|token)[^=&;?]*=)[^&;?]*", r"\1***", self.value)
        return self.value


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """Return every setting: its variable where that is set, else the default."""
    home = environment.get("DPSERVE_HOME") or str(user_folder("DPSERVE_HOME", DEFAULT_HOME, environment))
    defaults = {
        "DPSERVE_HOME": home,
        "DPSERVE_LOCAL": home,
        "DPSERVE_LEDGER_URL": f"sqlite:///{Path(home).absolute() / 'ledger.db'}",
        "DPSERVE_ENGINE": "local",
        "DPSERVE_RESUME": "0",
        "DPSERVE_ISSUER_KEY": "",
        "DPSERVE_WITNESS_POLICY": "",
        "DPSERVE_SCHEDULES_OF_ONE": str(MAX_OF_ONE),
    }
    return {
        name: Setting(name, environment.get(name) or default, "environment" if environment.get(name) else "default")
        for name, default in defaults.items()
    }


@dataclass(frozen=True)
class Home:
    """One installation: its folders, its keys, its ledger."""

    path: Path
    keys: KeyStore
    ledger: Ledger

    @classmethod
    def init(cls, environment: Mapping[str, str] = os.environ) -> Home:
        """Make a new home: folders 0700, keys, a ledger with its first entry, and the trust file for auditors.

        Raises:
            KeyInvalid: there are keys already, which are never replaced; or the issuer's signer cannot be reached.
            LedgerInvalid: the database holds a ledger whose keys are not here.
            LedgerUnavailable: the database cannot be used.
        """
        path, url = place(environment)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (path / "keys").exists():
            raise KeyInvalid(f"home={path}: has keys already; dpserve never makes new ones in their place")
        database = Store(url)
        database.create()
        with database.reading() as connection:
            if size(connection):
                raise LedgerInvalid(
                    f"home={path}: the ledger has entries but its keys are gone; restore them from a copy"
                )
        database.close()
        for folder in ("models", "datasets", "jobs"):
            (path / folder).mkdir(mode=0o700, exist_ok=True)
        (local(path) / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        uri = settings(environment)["DPSERVE_ISSUER_KEY"].value
        issuer = None if in_keys(uri) else signers.import_key(uri)
        return cls._begin(path, url, KeyStore.create(path / "keys", issuer=issuer))

    @classmethod
    def _begin(cls, path: Path, url: str, keys: KeyStore) -> Home:
        origin = f"dpserve/{uuid.uuid4()}"
        return cls(path, keys, Ledger.create(url, keys, mark(path), origin))._with_trust_file()

    def _with_trust_file(self) -> Home:
        """Write the file for auditors where a first start was cut before it, and bring it up to date where a change of
        keys was. A file that says something else is left for the audit to find.
        """
        try:
            stored = PublicKeys.from_json((self.path / TRUST).read_bytes())
        except FileNotFoundError:
            self.write_trust()
        except (KeyInvalid, OSError):
            return self
        else:
            current = self.trust
            if stored != current and current.continues(stored):
                self.write_trust()
        return self

    def write_trust(self) -> None:
        """Write what the ledger says of its keys to the file that auditors pin, in one step."""
        with key_exchange.alone(self.keys.directory):  # what was read last is written last
            replace_file(self.path / TRUST, self.trust.to_json(), 0o644, alone=True)

    @classmethod
    def open(cls, environment: Mapping[str, str] = os.environ, tables: Tables = Tables.CURRENT) -> Home:
        """Open an existing home, failing closed. What a cut has left half done is made good.

        Raises:
            InputError: there is no home at that place, or the ledger's tables are not as `tables` says.
            KeyInvalid: keys are missing, readable by others, or not the ledger's.
            LedgerInvalid: the ledger is not the one that these keys signed last: rolled back, rewritten, or gone.
            LedgerUnavailable: the database or the high-water mark cannot be used.
        """
        path, url = place(environment)
        if not (path / "keys").exists():
            if (path / TRUST).exists():
                raise KeyInvalid(f"home={path}: its keys are gone; restore them from a copy")
            raise InputError(f"home={path}: there is no dpserve here; run `dpserve init` first")
        database, signed = Store(url), (HighWater(mark(path)).read() or (0, b""))[0]
        if signed and engines.is_gone(database.engine):
            raise LedgerInvalid("ledger: its file is gone, but these keys have signed a ledger before; restore a copy")
        with ExitStack() as refusal:
            refusal.callback(database.close)  # or its file stays open, and a copy that is put there is not read
            if tables is Tables.MIGRATE:
                migration.bring_forward(path, database)
            else:
                database.require_tables(tables)
            keys = opening.open_keys(path / "keys", database, settings(environment)["DPSERVE_ISSUER_KEY"].value)
            with database.reading() as connection:
                empty = size(connection) == 0
            if not empty:
                ledger = Ledger(TransparencyLog.open(database, keys, HighWater(mark(path))))
                opening.check_issuer(database, keys)
                home = cls(path, keys, ledger)._with_trust_file()
                refusal.pop_all()
                return home
        if signed:
            raise LedgerInvalid("ledger: is empty, but these keys have signed a ledger before")
        return cls._begin(path, url, keys)  # a first start that was cut between keys and ledger

    @property
    def trust(self) -> PublicKeys:
        """Return what an auditor pins: origin, public keys and what they speak for, certificates that were revoked."""
        with self.ledger.log.signed() as signed:
            return signed.trust(self.ledger.log.origin)

    def job_notifications(self) -> JobNotifications:
        """Return the notifications that wake a worker when a job is queued."""
        return JobNotifications(self.ledger.log.database)

    @property
    def models(self) -> Path:
        """Return the folder of released models (`models.store.bundle.ModelStore`)."""
        return self.path / "models"

    @property
    def datasets(self) -> Path:
        """Return the folder of packed rows, one folder a dataset, named by its commitment."""
        return self.path / "datasets"

    @property
    def evaluations(self) -> Path:
        """Return the folder of statements of worth, one folder a job, named by its reservation; made with the first."""
        return self.path / "evaluations"

    @property
    def profiles(self) -> Path:
        """Return the folder of signed profiles of datasets, by job."""
        return self.path / "profiles"

    @property
    def jobs(self) -> Path:
        """Return the folder of what running jobs hold on disk, one folder a job, named by its reservation."""
        return self.path / "jobs"


def place(environment: Mapping[str, str]) -> tuple[Path, str]:
    """Return the home's folder and the URL of its ledger's database."""
    values = settings(environment)
    return Path(values["DPSERVE_HOME"].value), values["DPSERVE_LEDGER_URL"].value


def local(path: Path) -> Path:
    """Return the folder of what this machine alone uses, `run/` and `logs/`: the home at `path`, unless DPSERVE_LOCAL
    names another place. Absolute.
    """
    return Path(os.environ.get("DPSERVE_LOCAL") or path).absolute()


def mark(path: Path) -> Path:
    """Return the file of the high-water mark of the home at `path`."""
    return path / "keys" / "high-water.json"
