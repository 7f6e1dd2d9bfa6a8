"""What is logged, by every process of the server alike, on stderr: a line each, as text or (DPSERVE_LOG_FORMAT=json) as
one JSON object.

No line holds data. An exception is told by its type and the places it passed through: its message, and the source line
that raised it, might hold a value of a row. Of what libraries say only the first line is kept, for the same reason.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from serving.process.config.settings import ServerSettings

OURS = "dpserve"
ROOT = Path(__file__).resolve().parents[3]
QUIETED = ("bentoml", "uvicorn", "uvicorn.error", "uvicorn.access", "circus")  # they bring handlers of their own


def set_up() -> None:
    """Take the place of every handler there is, in the form that DPSERVE_LOG_FORMAT says. Ours from INFO on, all others
    from WARNING on. InputError as ServerSettings.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if ServerSettings().log_format == "json" else TextLine())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in QUIETED:
        library = logging.getLogger(name)
        library.handlers, library.propagate = [], True
        library.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(logging.INFO)


class JsonLine(logging.Formatter):
    """{"time", "level", "logger", "process", "message"}, and {"error": {"type", "at"}} where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        body: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": _message(record),
        }
        error = _error(record)
        return json.dumps(body if error is None else {**body, "error": error}, ensure_ascii=False)


class TextLine(logging.Formatter):
    """The same for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of text."""
        error = _error(record)
        line = f"{_time(record)} {record.levelname} {record.name}[{record.process}]: {_message(record)}"
        return line if error is None else f"{line} ({error['type']} at {', '.join(error['at'])})"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    """Return the message on one line. Of a library only the first line: the second is an exception's message, or the
    request itself.
    """
    message = record.getMessage()
    return " ".join(message.splitlines()) if record.name.split(".")[0] == OURS else message.partition("\n")[0]


def _error(record: logging.LogRecord) -> dict[str, Any] | None:
    if not record.exc_info or record.exc_info[1] is None:
        return None
    error = record.exc_info[1]
    frames = traceback.extract_tb(error.__traceback__)
    return {"type": type(error).__name__, "at": [f"{_place(f.filename)}:{f.lineno} {f.name}" for f in frames]}


def _place(filename: str) -> str:
    """Name a file of ours from the project's root on, and a library's by its last two names."""
    path = Path(filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else "/".join(path.parts[-2:])
