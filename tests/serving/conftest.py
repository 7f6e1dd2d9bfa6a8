"""What tests of pages share: a Chromium for each file, and a page that is as new for each test."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def browser():
    from browser import chromium  # loaded where it is asked for: it takes a while

    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def shared(browser, server):
    from browser import new_page

    found = new_page(browser, server)
    yield found
    found.context.close()


@pytest.fixture
def page(shared, server, request):
    """Signed in by the scope that the file names as SCOPE. Nothing may go wrong on it that the test does not clear."""
    from browser import as_new, no_faults

    yield as_new(shared, server, request.module.SCOPE)
    no_faults(shared)
