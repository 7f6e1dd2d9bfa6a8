"""The server's settings: variables, types, bounds and defaults in one place; `dpserve config` tells them.

A flag of `dpserve serve` goes before its variable. Reading them costs a tenth of a second of imports, so no light
command does; defaults that its flags need are in `startup`. Those of the home are `accountant.home`'s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from accountant.home import Setting
from accountant.home import settings as home_settings
from accountant.system import traces
from accountant.system.machine import processors
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import whole_number
from dpserve_verify.privacy.budget import exact_decimal
from serving.process.config.startup import AUDIT_SECONDS, DRAIN_SECONDS, HOST, JOB_WORKERS, PORT

FORMATS = ("text", "json")
CHAMPIONS, ALL = "champions", "all"  # whose predictions are series of their own


def variable_of(field: str) -> str:
    """Return the environment variable of a field: `audit_seconds` -> DPSERVE_AUDIT_SECONDS."""
    return f"DPSERVE_{field.upper()}"


def _within(least: int, most: int, says: str) -> BeforeValidator:
    """Make a validator of whole numbers in ASCII digits, least..most; it raises InputError for anything else."""

    def read(value: Any, info: ValidationInfo) -> int:
        text = str(value)
        number = whole_number(text, most)
        if number is None or number < least:
            raise InputError(f"{variable_of(str(info.field_name))}={text[:40]!r}: must be {says}")
        return number

    return BeforeValidator(read)


def _log_format(value: Any, info: ValidationInfo) -> str:
    if value not in FORMATS:
        raise InputError(f"{variable_of(str(info.field_name))}={str(value)[:20]}: must be text or json")
    return str(value)


def _metrics_versions(value: Any, info: ValidationInfo) -> str:
    if value not in (CHAMPIONS, ALL):
        raise InputError(f"{variable_of(str(info.field_name))}={str(value)[:20]}: must be {CHAMPIONS} or {ALL}")
    return str(value)


def _drain_seconds(value: Any, info: ValidationInfo) -> float:
    try:
        seconds = float(exact_decimal(str(info.field_name), str(value)))
    except InputError:
        seconds = -1.0
    if seconds < 0:
        raise InputError(
            f"{variable_of(str(info.field_name))}={str(value)[:20]!r}: must be a number of seconds, 0 or more"
        )
    return seconds


def _absolute(value: Any, info: ValidationInfo) -> str:
    if not all(path.startswith("/") for path in str(value).split(os.pathsep) if path):
        raise InputError(
            f"{variable_of(str(info.field_name))}={str(value)[:80]!r}: must be absolute paths with {os.pathsep} between"
        )
    return str(value)


def _provider(value: str) -> str:
    """Return the provider of single sign-on as it was given; what reads it is loaded where there is one."""
    if value:
        from serving.process.config.provider import Provider

        Provider.of(value)
    return value


Above0 = Annotated[int, _within(1, 2**53 - 1, "a whole number above 0")]


class ServerSettings(BaseSettings):
    """What the processes of the server read from the environment. InputError, at the start, for what means nothing."""

    model_config = SettingsConfigDict(
        alias_generator=variable_of, populate_by_name=True, case_sensitive=True, env_ignore_empty=True, frozen=True
    )

    host: str = HOST
    port: Annotated[int, _within(1, 65535, "a port, 1 to 65535")] = PORT
    workers: Above0 = processors()
    grpc: Annotated[int, _within(0, 65535, "a port, 1 to 65535; 0: none")] = 0
    tls_cert: str = ""
    tls_key: str = ""
    log_format: Annotated[str, BeforeValidator(_log_format)] = "text"
    audit_seconds: Annotated[int, _within(0, 999_999_999, "a whole number of seconds; 0: only when asked")] = (
        AUDIT_SECONDS
    )
    drain_seconds: Annotated[float, BeforeValidator(_drain_seconds)] = DRAIN_SECONDS
    job_workers: Annotated[int, _within(0, 1000, "a whole number of processes, at most 1000")] = JOB_WORKERS
    worker: Annotated[int, _within(0, 1, "0 or 1")] = 1
    models_in_memory: Above0 = 100
    without_ledger_seconds: Annotated[int, _within(10, 86_400, "a whole number of seconds, 10 to 86400")] = 300
    metrics_versions: Annotated[str, BeforeValidator(_metrics_versions)] = CHAMPIONS
    trail_bytes: Above0 = 100_000_000
    trail_files: Above0 = 20
    upload_bytes: Annotated[int, _within(0, 1 << 40, "a whole number of bytes, at most 2^40; 0: no uploads")] = 2 << 30
    sso: Annotated[str, AfterValidator(_provider)] = ""
    data_folders: Annotated[str, BeforeValidator(_absolute)] = ""

    @model_validator(mode="after")
    def _mean_something(self) -> Self:
        """Check what no field's own type says."""
        traces.collector(os.environ)
        return self

    @property
    def folders(self) -> list[Path]:
        """Return the folders below which a steward may name files in a browser."""
        return [Path(path) for path in self.data_folders.split(os.pathsep) if path]

    @classmethod
    def with_flags(cls, **flags: str) -> ServerSettings:
        """Read the settings; flags, as they were typed, go before their variables."""
        typed: dict[str, Any] = dict(flags)
        return cls(**typed)


def all_settings(environment: Mapping[str, str] = os.environ) -> list[Setting]:
    """List the home's settings, then the server's, as they were given: each with its value and its source."""
    defaults = {variable_of(name): str(field.default) for name, field in ServerSettings.model_fields.items()}
    defaults |= {traces.EXPORTER: "otlp if there is an endpoint", traces.ENDPOINT: "", traces.OWN_ENDPOINT: ""}
    serving = [
        Setting(name, environment.get(name) or default, "environment" if environment.get(name) else "default")
        for name, default in defaults.items()
    ]
    secret = "DPSERVE_KEY_PASSPHRASE" in environment
    passphrase = Setting("DPSERVE_KEY_PASSPHRASE", "(hidden)" if secret else "", "environment" if secret else "default")
    return [*home_settings(environment).values(), *serving, passphrase]
