"""Ask the server of this container whether it is ready: `python -m serving.process.config.healthy`, exit code 0 or 1.

What a container's health check runs every few seconds, so it brings nothing but Python's own library.
"""

from __future__ import annotations

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

WAIT_SECONDS = 5.0


def is_ready(host: str, port: int, tls: bool, seconds: float = WAIT_SECONDS) -> bool:
    """Ask the server on this machine whether it is ready. Its certificate is not checked: it names another host."""
    connection = (
        HTTPSConnection(host, port, timeout=seconds, context=ssl._create_unverified_context())
        if tls
        else HTTPConnection(host, port, timeout=seconds)
    )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    PORT, TLS = int(os.environ.get("DPSERVE_PORT") or 3000), bool(os.environ.get("DPSERVE_TLS_CERT"))
    sys.exit(not is_ready("127.0.0.1", PORT, TLS))
