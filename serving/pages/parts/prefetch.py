"""What the first page would otherwise wait for, done while the server starts to answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio

from accountant.store.entry_index import entry_index
from dpserve_verify.errors import DpserveError
from serving.pages.parts.ui import TEMPLATES
from serving.process.state import ServingState

LOG = logging.getLogger("dpserve.serving")


@asynccontextmanager
async def warming(serving: ServingState) -> AsyncIterator[None]:
    """Run `warm` while the first requests are answered; give it up where the server ends before it is done."""
    task = asyncio.create_task(anyio.to_thread.run_sync(partial(warm, serving), abandon_on_cancel=True))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def warm(serving: ServingState) -> None:
    """Read every template, design every budget's filter, index every entry's kind and job. A home that cannot be read
    now gives its error to the first request.
    """
    for name in TEMPLATES.list_templates():
        TEMPLATES.get_template(name)
    try:
        ledger = serving.home.ledger
        ledger.datasets()
        with ledger.log.database.reading() as connection:
            entry_index(ledger.log.database, connection)
    except DpserveError as error:
        LOG.warning("pages are not prepared: %s", error.code)
