"""The page of the audit: what the last one found, how to ask for another, and how to repeat it without us."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.log.notes import parse_checkpoint
from serving.http.routes import Door, in_snapshot, in_thread, page_door, state
from serving.pages.parts.ui import form_fields, page, see_other
from serving.process.watch import audit_runs
from serving.wire.lists import attachment_header
from serving.wire.request_bodies import known_query, query_text

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


async def show_audit(request: Request) -> Response:
    """Return the page of the newest audit. With `asked`, it reloads until there is an audit that began after."""
    known_query(request, "asked")
    since = query_text(request, "asked") or ""
    if since and not _TIME.fullmatch(since):
        raise InputError(f"asked={since[:40]!r}: must be the time of the answer that led here")
    return page(request, "audit.html", **await in_thread(_audit_context, state(request).home, since))


def _audit_context(home: Home, since: str) -> dict[str, Any]:
    note = home.ledger.log.checkpoint()
    head, last = parse_checkpoint(note), audit_runs.last_audit(home)
    answered = last is not None and last["at"] >= since
    return {
        "last": last,
        "since": 0 if last is None else head.size - last["entries"],
        "waiting": audit_runs.is_asked(home.path) or not (answered or since == ""),
        "asked": since,
        "head": {"size": head.size, "root": encode_base64(head.root)},
        "note": note,
        "origin": home.ledger.log.origin,
    }


async def ask_audit(request: Request) -> Response:
    """Ask for an audit, and lead to the page that waits for it."""
    await form_fields(request, "again")
    time = await in_thread(audit_runs.ask, state(request).home)
    return see_other(f"/ui/audit?asked={time}")


async def checkpoint(request: Request) -> Response:
    """Return the newest signed tree head, as a file to keep."""
    known_query(request)
    note = await in_thread(state(request).home.ledger.log.checkpoint)
    name = f"checkpoint-{parse_checkpoint(note).size}.txt"
    headers = {**attachment_header(name), "Cache-Control": "no-store"}
    return Response(note, headers=headers, media_type="text/plain; charset=utf-8")


async def download(request: Request) -> Response:
    """Send the whole ledger as `dpserve ledger export` writes it, zipped, for `dpserve ledger audit FOLDER`."""
    known_query(request)
    packed, size = await in_snapshot(request, _zip_ledger, state(request).home)
    headers = {**attachment_header("ledger.zip"), "Content-Length": str(size)}
    chunks = iter(partial(packed.read, CHUNK), b"")
    done = BackgroundTask(packed.close)
    return StreamingResponse(chunks, headers=headers, media_type="application/zip", background=done)


def _zip_ledger(home: Home) -> tuple[IO[bytes], int]:
    """Write the ledger into a nameless temporary file, zipped; return it and its size in bytes."""
    from accountant.audit.export import export  # brings numba: the pages wait for none of it

    packed: IO[bytes] = TemporaryFile(dir=home.path)  # noqa: SIM115 (it is read after this)
    zipped = ZipFile(packed, "w", ZIP_DEFLATED, compresslevel=1)
    with TemporaryDirectory(dir=home.path, prefix="export-") as scratch, zipped as out:
        export(home, Path(scratch) / "ledger")
        for path in sorted((Path(scratch) / "ledger").iterdir()):
            out.write(path, f"ledger/{path.name}")
    size = packed.tell()
    packed.seek(0)
    return packed, size


AUDIT = ("audit",)
CHUNK = 1 << 18
DOORS = (
    page_door("GET", "/ui/audit", AUDIT, show_audit, "The audit"),
    page_door("POST", "/ui/audit", AUDIT, ask_audit, "Ask for an audit", 303),
    Door("GET", "/ui/audit/ledger.zip", AUDIT, download, "The whole ledger", media="application/zip", hidden=True),
    Door("GET", "/ui/audit/checkpoint", AUDIT, checkpoint, "The newest checkpoint", media="text/plain", hidden=True),
)
