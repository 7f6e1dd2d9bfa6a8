"""The link by which the first admin signs in: `dpserve serve` prints it while the first token lies in the home.

A link is good once, for LINK_SECONDS. Its code stands behind the `#`, which no browser sends: neither to us, where a
log of requests would keep it, nor as `Referer` to anybody else. A script of the login page puts it into a form. What
lies on disk is its hash.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import sys
import time
from pathlib import Path

from accountant.home import local
from dpserve_verify.system.files import PRIVATE, replace_file
from serving.process.config.settings import ServerSettings
from serving.process.tokens import digest, new_code

LOG = logging.getLogger("dpserve.launch")
FIRST_TOKEN = "first-token"  # the file in the home
LINK = "run/sign-in"  # of this machine
LINK_SECONDS = 900
LOOPBACK = ("127.", "::1")


def print_link(home: Path, url: str, host: str) -> None:
    """Print a new link where the first token was not taken from the home yet. The old link is good no more.

    Only where this machine alone can use it, or a person reads what is printed: a store of logs may keep the rest.
    """
    place = local(home) / LINK
    place.unlink(missing_ok=True)
    if not (home / FIRST_TOKEN).exists() or not (host.startswith(LOOPBACK) or sys.stderr.isatty()):
        return
    code = new_code()
    body = {"digest": digest(code), "until": time.time() + LINK_SECONDS}
    replace_file(place, json.dumps(body).encode(), PRIVATE)
    words = f"Sign in as the first admin, once, within {LINK_SECONDS // 60} minutes: {url}/ui/login#{code}"
    if ServerSettings().log_format == "json":
        LOG.info(words)
    else:
        print(words, file=sys.stderr, flush=True)


def redeem(home: Path, code: str) -> str:
    """Return the first token for the code of a link, which is used up by it; an empty text for any other code."""
    place = local(home) / LINK
    try:
        body = json.loads(place.read_bytes())
        if not hmac.compare_digest(body["digest"], digest(code)) or time.time() > body["until"]:
            return ""
        os.unlink(place)  # of several that come at once, one has it
        return (home / FIRST_TOKEN).read_text("ascii").strip()
    except FileNotFoundError:
        return ""
