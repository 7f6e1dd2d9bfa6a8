"""The page of campaigns among owners: how many have answered, of how many that are wanted."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.home import Home
from local.campaign import campaigns
from serving.http.routes import Door, in_thread, state
from serving.pages.parts.ui import page
from serving.wire import lists
from serving.wire.request_bodies import known_query

# What a campaign's state is called here: (badge, words).
STATES = {
    "unopened": ("off", "never opened"),
    "open": ("run", "open"),
    "started": ("wait", "closed, not learnt from yet"),
    "committed": ("run", "signing"),
    "issued": ("good", "done"),
    "burned": ("bad", "no model"),
}


COLUMNS = (
    "campaign",
    "state",
    "population",
    "learner",
    "epsilon",
    "delta",
    "owners",
    "reports",
    "least",
    "model",
    "job",
)


async def list_campaigns(request: Request) -> Response:
    """Return the page of all campaigns, the newest first."""
    known_query(request, lists.FORM)
    form = lists.form_of(request)
    states = await in_thread(_campaigns, state(request).home)
    if form is not None:
        return lists.as_file(form, "campaigns", COLUMNS, states)
    waits = any(campaign["state"] in ("open", "started") for campaign in states)
    return page(request, "campaigns.html", campaigns=states, states=STATES, waits=waits)


def _campaigns(home: Home) -> list[dict[str, Any]]:
    states = [campaigns.state(home, name) for name in campaigns.names(home)]
    return sorted(states, key=lambda each: -each["job"])


DOORS = (Door("GET", "/ui/campaigns", ("train", "audit"), list_campaigns, "Campaigns", media="text/html", hidden=True),)
