"""Every setting, its value, and where it came from: `dpserve config`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from accountant.errors import InputError
from accountant.home import Setting
from accountant.home import settings as home_settings

HOST, PORT = "127.0.0.1", 3000
TRAIL_BYTES, TRAIL_FILES = "DPSERVE_TRAIL_BYTES", "DPSERVE_TRAIL_FILES"
TRAIL = {TRAIL_BYTES: 100_000_000, TRAIL_FILES: 20}


def all_settings(environment: Mapping[str, str] = os.environ) -> list[Setting]:
    """The home's settings, then the server's. Each is a variable; a flag of `dpserve serve` goes before it."""
    defaults = {"DPSERVE_HOST": HOST, "DPSERVE_PORT": str(PORT), "DPSERVE_WORKERS": str(os.cpu_count() or 1)}
    defaults |= {"DPSERVE_TLS_CERT": "", "DPSERVE_TLS_KEY": "", "DPSERVE_LOG_FORMAT": "text"}
    defaults |= {"DPSERVE_AUDIT_SECONDS": "3600", "DPSERVE_DRAIN_SECONDS": "0"}
    defaults |= {"DPSERVE_MODELS_IN_MEMORY": "100"}
    defaults |= {name: str(value) for name, value in TRAIL.items()}
    serving = [
        Setting(name, environment.get(name) or default, "environment" if environment.get(name) else "default")
        for name, default in defaults.items()
    ]
    secret = "DPSERVE_KEY_PASSPHRASE" in environment
    passphrase = Setting("DPSERVE_KEY_PASSPHRASE", "(hidden)" if secret else "", "environment" if secret else "default")
    return [*home_settings(environment).values(), *serving, passphrase]


def trail_setting(name: str, environment: Mapping[str, str] = os.environ) -> int:
    """Of the audit trail. InputError where it is not a whole number above 0."""
    text = environment.get(name) or str(TRAIL[name])
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**53):
        raise InputError(f"{name}={text[:40]!r}: must be a whole number above 0")
    return int(text)


def check_trail() -> None:
    """At the start. InputError where a setting of the trail is wrong."""
    for name in TRAIL:
        trail_setting(name)
