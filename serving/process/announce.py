"""Saying when the server is ready, and where: what somebody at a terminal waits for."""

from __future__ import annotations

import logging
import ssl
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from serving.process.startup import Listening

LOG = logging.getLogger("dpserve.launch")
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
LOOK_SECONDS = 0.25


def announce(listening: Listening, stop: threading.Event) -> None:
    """Log one line as soon as /readyz answers 200, in a thread that ends with `stop`."""
    threading.Thread(target=_announce, args=(listening, stop), daemon=True).start()


def _announce(listening: Listening, stop: threading.Event) -> None:
    while not stop.wait(LOOK_SECONDS):
        if is_ready(listening):
            LOG.info("ready, listening on %s; the dashboard is at %s/ui", listening.url, listening.url)
            return


def is_ready(listening: Listening) -> bool:
    """Whether the server answers that it is. Our own server on our own machine: its certificate names another."""
    host = EVERYWHERE.get(listening.host, listening.host)
    connection = (
        HTTPConnection(host, listening.port, timeout=5)
        if listening.tls is None
        else HTTPSConnection(host, listening.port, timeout=5, context=ssl._create_unverified_context())
    )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
