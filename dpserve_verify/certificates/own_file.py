"""The file that this program was installed from: who fetches the same one elsewhere compares the two."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "dpserve-verify"
_NAME, _SHA256 = re.compile(r"[A-Za-z0-9._+-]{1,120}"), re.compile(r"[0-9a-f]{64}")


def own_file() -> str:
    """Return the name and sha256 of the wheel, as pip noted them when it was installed; empty where it was from
    sources.
    """
    try:
        noted = json.loads(metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        digest = str(noted["archive_info"]["hashes"]["sha256"])
        name = PurePosixPath(unquote(urlsplit(str(noted["url"])).path)).name
    except (metadata.PackageNotFoundError, KeyError, TypeError, ValueError):
        return ""
    return f"{name}, sha256 {digest}" if _NAME.fullmatch(name) and _SHA256.fullmatch(digest) else ""
