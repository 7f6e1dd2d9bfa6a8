"""The application in a process whose memory the system bounds: bodies on stdin, statuses on stdout, a line each.

    python bounded_worker.py TOKEN BYTES

Each body is a line of JSON (path, kind, headers, size, bounded) and its bytes. From the first that is `bounded` on, the
process has BYTES of address space beside what it had.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

import httpx

from serving.app import make_app
from serving.http.routes import Doors


def bound(room: int) -> None:
    """Once: what is asked for beyond is refused, and Python says MemoryError."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))


async def main(token: str, room: int) -> None:
    """Answer until there is no more."""
    app = make_app()
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(Doors(app, app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", timeout=60) as client:
            # In another thread: a home that this one does not look at for ten seconds is not answered for.
            while line := await asyncio.to_thread(sys.stdin.buffer.readline):
                asked = json.loads(line)
                raw = await asyncio.to_thread(sys.stdin.buffer.read, asked["size"])
                if asked["bounded"]:
                    bound(room)
                headers = {"Authorization": f"Bearer {token}", "Content-Type": asked["kind"], **asked["headers"]}
                answer = await client.post(asked["path"], content=raw, headers=headers)
                print(answer.status_code, flush=True)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
