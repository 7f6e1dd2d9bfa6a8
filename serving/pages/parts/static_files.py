"""The static files of the pages: read once at start, each under the digest of its bytes, those of others as pinned.

Starlette's StaticFiles reads the disk at each request, so what is sent need not be what was checked at the start; it
names a version of a file by its time, and packs nothing. Here a path is looked up in a table, so none can lead out of
it. An address carries its file's digest (`?v=`), so a browser may keep what it got permanently.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import UnknownName
from dpserve_verify.errors import VerificationError

FOLDER = Path(__file__).parents[1] / "static"
PINNED = "vendor/SHA256SUMS"
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
PERMANENTLY = "public, max-age=31536000, immutable"


@dataclass(frozen=True, eq=False)
class StaticFile:
    """The bytes of a file and its media type."""

    content: bytes
    media: str

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the content, in hex."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def packed(self) -> bytes:
        """Return the content by gzip; the same bytes each time."""
        return gzip.compress(self.content, 6, mtime=0)


@cache
def files(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Return every static file by its path. VerificationError where a pinned file differs or is absent, or a vendored
    one is not pinned.
    """
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in MEDIA]
    by_path = {path.relative_to(folder).as_posix(): StaticFile(path.read_bytes(), MEDIA[path.suffix]) for path in paths}
    lines = [line.split("  ", 1) for line in (folder / PINNED).read_text("utf-8").splitlines()]
    pinned = {f"vendor/{name}": digest for digest, name in lines}
    vendored = {name: file.digest for name, file in by_path.items() if name.startswith("vendor/")}
    wrong = sorted(name for name in pinned.keys() | vendored.keys() if pinned.get(name) != vendored.get(name))
    if wrong:
        raise VerificationError(f"static files {wrong}: are not those of {PINNED}; install dpserve anew", files=wrong)
    return by_path


def address(name: str) -> str:
    """Return the address of a static file: `dpserve.css` -> `/ui/static/dpserve.css?v=...`."""
    return f"/ui/static/{name}?v={files()[name].digest[:16]}"


async def answer(request: Request) -> Response:
    """Return a static file, 304 where the browser has it; cached permanently where the address names its digest.
    UnknownName.
    """
    name = request.path_params["path"]
    file = files().get(name)
    if file is None:
        raise UnknownName(f"file={name[:80]!r}: there is no such file")
    version = request.query_params.get("v")
    headers = {
        "ETag": f'"{file.digest[:32]}"',
        "Cache-Control": PERMANENTLY if version == file.digest[:16] else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media)
    return Response(file.content, headers=headers, media_type=file.media)
