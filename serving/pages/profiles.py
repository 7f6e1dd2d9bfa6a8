"""The page of a profile, each column as the schema declares it, beside how its rows are spread; and of an answer."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from accountant.certificates.answer import ANSWER
from accountant.certificates.statement_kinds import kind_at
from accountant.home import Home
from models.answers import report as answer_report
from models.profile import report
from models.profile.columns import labels
from models.profile.synthetic import counted_rows, synthesize
from serving.http.rights import NAMED, READS, hide_name
from serving.http.routes import Door, access, in_thread, job_number, require_dataset, state
from serving.pages.parts.ui import page
from serving.wire.request_bodies import known_query
from training.kinds.registry import stated_steps
from training.requests import ProfileRequest, QueryRequest

MOST_DRAWN = 50_000  # rows of which a page says how near they come


async def profile(request: Request) -> Response:
    """Return the page of a profile, with its pictures, or of the answer to a query."""
    known_query(request)
    seq = job_number(request)
    home = state(request).home
    is_answer = await in_thread(kind_at, home, seq) is ANSWER
    context = await in_thread(_answer if is_answer else _profile, home, seq)
    with hide_name(access(request), seq):
        await require_dataset(request, READS, context["dataset"])
    return page(request, "answer.html" if is_answer else "profile.html", **context)


def _answer(home: Home, seq: int) -> dict[str, Any]:
    body = stated_steps(QueryRequest).read(home, seq)[3]
    head, *rows = answer_report.lines(body)
    return {
        "dataset": body["dataset"], "job": seq, "facts": answer_report.facts(body), "head": head, "rows": rows,
        "groups": len(body["question"]["by"]), "select": body["question"]["select"],
        "picture": Markup(answer_report.picture(body)),  # made of numbers and of escaped names
    }  # fmt: skip


def _profile(home: Home, seq: int) -> dict[str, Any]:
    _, _, found, body = stated_steps(ProfileRequest).read(home, seq)
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
        "quality": synthesize(found, min(MOST_DRAWN, counted_rows(found))).quality,
    }  # fmt: skip


DOORS = (Door("GET", "/ui/profiles/{job}", READS, profile, "A profile", media="text/html", hidden=True, on=NAMED),)
