"""The frame of the pages: templates that escape, the navigation by scope, words for numbers, and forms.

A page is a template filled by `page`; it is a GET and changes nothing. What changes something is a POST of a form to an
address under /ui, which answers with `see_other`. Scripts only add to what works without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from accountant.access.grants import Access
from accountant.access.tokens import SCOPES, Token
from accountant.ledger.families.left import left_words, room_words, windows_words
from accountant.system import extensions
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.privacy.budget import percent_words
from models.worth.words import short_figures
from serving.http.compression import pack
from serving.http.rights import JOBS, READS
from serving.pages.parts import static_files
from serving.pages.parts.places import Place
from serving.process.watch.access_log import note_refusal
from serving.wire.errors import status_of
from serving.wire.request_bodies import read_body
from training.learners.job_words import IN_CAMPAIGN, STATES, short_reason

FORM_BYTES = 1 << 16
MAX_FIELDS = 200
FORM = b"application/x-www-form-urlencoded"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


EXTENSIONS: tuple[Place, ...] = sum(extensions.load("places"), ())
PLACES = (
    Place("/ui/datasets", "Datasets", READS, "What is registered, and what is left of each budget"),
    Place("/ui/jobs", "Jobs", JOBS, "What was asked for, what runs, and what it cost"),
    Place("/ui/models", "Models", SCOPES, "What was released, with its certificate"),
    Place("/ui/ledger", "Ledger", ("audit",), "Every entry, in plain words and as it was signed", True),
    Place("/ui/audit", "Audit", ("audit",), "Whether the ledger still adds up", True),
    Place("/ui/tokens", "Tokens", ("admin",), "Who may ask for what", True),
    Place("/ui/grants", "Grants", SCOPES, "Who may do what, on what, until when", later=True),
    Place("/ui/schedules", "Schedules", ("train", "audit", "steward"), "Jobs that are asked for again each period",
          later=True),
    *EXTENSIONS,
    Place("/ui/service", "Service", ("audit",), "Requests, errors, seconds, the queue and training", True, later=True),
    Place("/ui/keys", "Keys", ("admin",), "What certificates and checkpoints are signed with", True, later=True),
)  # fmt: skip


# Where the documentation explains a page: by how its address begins, the longest first.
HELP = (
    ("/ui/drafts", "tutorials/messy#in-the-browser"), ("/ui/datasets", "budgets"), ("/ui/profiles", "profile"),
    ("/ui/answers", "querying"),
    ("/ui/jobs", "dashboard#a-job-the-price-first"),
    ("/ui/schedules", "growing"),
    ("/ui/verify", "audit#in-the-browser"), ("/ui/models", "dashboard#models"), ("/ui/ledger", "audit"),
    ("/ui/audit", "audit"), ("/ui/service", "monitoring"), ("/ui/keys", "reference/home#keys"),
    ("/ui/evaluations", "evaluation"), ("/ui/grants", "access"), ("/ui/tokens", "access"),
    *((place.path, place.help) for place in EXTENSIONS), ("/ui", "dashboard"), ("/api", "reference/clients#with-curl"),
)  # fmt: skip


def places(access: Access | None) -> list[Place]:
    """Return the places of the navigation that somebody with these rights may open."""
    if access is None:
        return []
    return [place for place in PLACES if (access.may if place.whole else access.has)(*place.scopes)]


def figure(value: str | float | Decimal, digits: int = 4) -> str:
    """Format a number: up to `digits` significant digits, no needless zeros, small ones as 5 × 10⁻⁷."""
    number = Decimal(str(value))
    if not number:
        return "0"
    if number.adjusted() < -4:
        mantissa, _, exponent = f"{number:.{digits - 1}e}".partition("e")
        power, times = f"10{exponent.replace('+', '').translate(RAISED)}", mantissa.rstrip("0").rstrip(".")
        return power if times == "1" else f"{times} × {power}"
    text = f"{number:,.{max(0, digits - 1 - number.adjusted())}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: str | float) -> str:
    """Format a share as per cent, as every door does."""
    return percent_words(float(share))


def rooms(left: Mapping[str, Any], what: str = "job") -> list[str]:
    """Say how much is used and what one more job may ask for: a line for each window of a dataset that grew."""
    return windows_words(left, what, "ε") or [left_words(left, what, "ε")]


def clock(time: str) -> str:
    """Format a time for people: 2026-11-21T16:09:04Z -> 21 Nov 2026, 16:09 UTC. The `<time>` element keeps the exact
    one.
    """
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    day, _, rest = time.partition("T")
    year, month, number = day.split("-")
    return f"{int(number)} {months[int(month) - 1]} {year}, {rest[:5]} UTC"


def _lines_of(thresholds: Sequence[Mapping[str, Any]], *names: str) -> list[list[tuple[float, float]]]:
    """Return a line of points for each figure, by the threshold at which it has a value."""
    known = [[row for row in thresholds if row[name]["value"]] for name in names]
    points = [
        [(float(row["threshold"]), min(1.0, float(row[name]["value"]))) for row in rows]
        for name, rows in zip(names, known, strict=True)
    ]
    return [line for line in points if line]


def _environment() -> Environment:
    brought = (Path(package.__file__).parent for package in extensions.load("templates"))
    environment = Environment(
        loader=FileSystemLoader([folder / "templates" for folder in (Path(__file__).parents[1], *brought)]),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": figure, "percent": percent, "clock": clock, "count": lambda number: f"{number:,}"}
    environment.filters |= {"rooms": rooms, "room": partial(room_words, epsilon="ε")}
    environment.filters |= {"short_reason": short_reason, "short_figures": short_figures}
    environment.filters |= {"lines_of": _lines_of}
    environment.globals |= {"static": static_files.address, "job_states": STATES, "in_campaign": IN_CAMPAIGN}
    return environment


TEMPLATES = _environment()


def page(
    request: Request, template: str, *, status: int = 200, refusal: DpserveError | None = None, **context: Any
) -> Response:
    """Render a template as a page for the caller alone: no cache may keep it. `refusal`: why what was asked for was not
    done: the page has its status, its words as `problem`, and the trail has its code. What a link leads to is packed:
    another site's link brings no cookie, so nobody measures what is on it by words of his own; a token that was made is
    an answer to a form, and is not.
    """
    if refusal is not None:
        note_refusal(refusal)
        status = status_of(refusal)
    token: Token | None = request.scope.get("dpserve.token")
    access: Access | None = request.scope.get("dpserve.access")
    path = request.url.path
    frame = {"token": token, "places": places(access), "here": path, "may": _may(access)}
    frame |= {"help": next((f"/docs/{at}" for start, at in HELP if path.startswith(start)), "/docs")}
    text = TEMPLATES.get_template(template).render(
        {"status": status, "problem": "" if refusal is None else refusal.message, **frame, **context}
    )
    accepted = request.headers.get("accept-encoding", "") if request.method == "GET" else ""
    raw, encoding = pack(text.encode(), accepted)
    headers = {"Cache-Control": "no-store", "Vary": "Cookie, Accept-Encoding", **encoding}
    return HTMLResponse(raw, status, headers=headers)


def _may(access: Access | None) -> Mapping[str, bool]:
    """Return for each scope whether it is held on anything; of those that open ledger, registration and tokens, whether
    on everything.
    """
    on_everything = ("audit", "steward", "admin")
    return {
        scope: access is not None and (access.may if scope in on_everything else access.has)(scope) for scope in SCOPES
    }


async def form_fields(request: Request, *names: str, most: int = FORM_BYTES) -> dict[str, str]:
    """Read the fields of a posted form of at most `most` bytes, each once and none but `names`; absent ones are empty.
    InputError else.
    """
    pairs = parse_form(await read_body(request, most, FORM))
    fields = dict(pairs)
    unknown = sorted(fields.keys() - set(names)) if names else []
    if unknown or len(fields) != len(pairs):
        raise InputError(f"form: {unknown[0][:80]!r} is not a field" if unknown else "form: a field stands twice")
    return {**dict.fromkeys(names, ""), **fields}


def parse_form(raw: bytes, most: int = MAX_FIELDS) -> list[tuple[str, str]]:
    """Parse a form's fields, in their order, repeated ones too, at most `most`. InputError where it is not a form."""
    try:
        return parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict",
            max_num_fields=most,
        )  # fmt: skip
    except ValueError:
        raise InputError("form: cannot be read") from None


def see_other(path: str) -> Response:
    """Redirect the browser to a page after a change, so that reloading it changes nothing."""
    return Response(status_code=303, headers={"Location": path})
