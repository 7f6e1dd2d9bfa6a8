"""The page of a profile: each column as the schema declares it, beside how its rows are spread."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from accountant.home import Home
from models.profile import report
from models.profile.columns import labels
from models.profile.synthetic import synthesize
from serving.http.rights import NAMED, READS, hide_name
from serving.http.routes import Door, access, in_thread, job_number, require_dataset, state
from serving.pages.parts.ui import page
from serving.wire.request_bodies import known_query
from training.measuring.profile import release


async def profile(request: Request) -> Response:
    """Return the page of a profile, with its pictures."""
    known_query(request)
    seq = job_number(request)
    context = await in_thread(_profile, state(request).home, seq)
    with hide_name(access(request), seq):
        await require_dataset(request, READS, context["dataset"])
    return page(request, "profile.html", **context)


def _profile(home: Home, seq: int) -> dict[str, Any]:
    found = release.profile_of(home, seq)[2]
    body = release.profile_to_json(seq, found)
    columns = [
        {
            "name": column["name"],
            "role": column["role"],
            "type": column["type"],
            "declared": f"{column['ends'][0]} to {column['ends'][1]}, {len(column['edges'])} cut points"
            if column["type"] == "numeric"
            else "true or false"
            if column["type"] == "boolean"
            else f"{len(column['values'])} values",
            "picture": Markup(picture),  # made of numbers and of escaped names
            "lines": report.lines(column),
            "counts": [*zip(labels(column), column["counts"], strict=True)],
        }
        for column, picture in report.figures(body)
    ]
    pairs = [(words, Markup(picture)) for words, picture in report.pair_figures(body)]
    return {
        "dataset": body["dataset"], "job": seq, "facts": report.facts(body), "columns": columns, "pairs": pairs,
        "quality": synthesize(found).quality,
    }  # fmt: skip


DOORS = (Door("GET", "/ui/profiles/{job}", READS, profile, "A profile", media="text/html", hidden=True, on=NAMED),)
