"""Libraries that report on who uses them, unless a variable tells them not to before they are loaded. Each is imported
here alone, so that nothing is sent anywhere, whatever the environment says: docs/nothing-is-sent.md.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

# Module: the variable that it reads, and what turns its reports off. Processes that we start inherit both.
REPORTING = {
    "onnxruntime": ("ORT_DISABLE_TELEMETRY", "1"),
    "bentoml": ("BENTOML_DO_NOT_TRACK", "true"),
}
BENTO_TRACKING = "bentoml._internal.utils.analytics.usage_stats"


def import_quietly(name: str) -> Any:
    """Import a module of REPORTING with its reports turned off, and return it. RuntimeError where it would report."""
    variable, off = REPORTING[name]
    quiet_before = os.environ.get(variable, "").lower() == off
    os.environ[variable] = off
    module = import_module(name)
    if name == "bentoml" and not quiet_before:
        _let_bento_ask_again()
    return module


def _let_bento_ask_again() -> None:
    """Have BentoML read its variable anew: its command did so before it loaded our service, and remembers it."""
    try:
        do_not_track = import_module(BENTO_TRACKING).do_not_track
        do_not_track.cache_clear()
        quiet = do_not_track()
    except (ImportError, AttributeError):  # another release, which keeps it elsewhere
        quiet = False
    if not quiet:
        raise RuntimeError("BentoML would report on its use: start it with BENTOML_DO_NOT_TRACK=True")
