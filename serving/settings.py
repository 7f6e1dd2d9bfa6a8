"""Every setting, its value, and where it came from: `dpserve config`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from accountant.home import Setting
from accountant.home import settings as home_settings

HOST, PORT = "127.0.0.1", 3000


def all_settings(environment: Mapping[str, str] = os.environ) -> list[Setting]:
    """The home's settings, then the server's. Each is a variable; a flag of `dpserve serve` goes before it."""
    defaults = {"DPSERVE_HOST": HOST, "DPSERVE_PORT": str(PORT), "DPSERVE_WORKERS": str(os.cpu_count() or 1)}
    serving = [
        Setting(name, environment.get(name) or default, "environment" if environment.get(name) else "default")
        for name, default in defaults.items()
    ]
    secret = "DPSERVE_KEY_PASSPHRASE" in environment
    passphrase = Setting("DPSERVE_KEY_PASSPHRASE", "(hidden)" if secret else "", "environment" if secret else "default")
    return [*home_settings(environment).values(), *serving, passphrase]
