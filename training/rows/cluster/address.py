"""Where the engine that answers about rows is: this process, or a cluster."""

from __future__ import annotations

from urllib.parse import urlsplit

from accountant.home import settings
from dpserve_verify.errors import InputError

NAMED = {"dask": "tcp", "tls": "tls"}


def engine_address() -> str | None:
    """Return where DPSERVE_ENGINE says that a cluster is, as Dask writes it; None where this process is the engine.
    InputError where it says neither.
    """
    address = settings()["DPSERVE_ENGINE"].value
    if address == "local":
        return None
    try:
        url = urlsplit(address)
        if url.scheme in NAMED and url.hostname and url.port and url.netloc.count("@") + len(url.path) == 0:
            return f"{NAMED[url.scheme]}://{url.netloc}"
    except ValueError:
        pass
    raise InputError(f"DPSERVE_ENGINE={address[:80]}: must be local, dask://HOST:PORT, or tls://HOST:PORT")
