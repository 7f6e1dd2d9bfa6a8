"""The pages of the ledger: every entry in plain words and as it was signed, found by what it is about."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger.entry_search import Found, Wanted, search
from accountant.ledger.families.dataset_sets import dataset_names
from accountant.log import stored_proofs
from accountant.log.entries import NEWEST_CHECKPOINT, latest_checkpoint
from accountant.store.entry_index import entry_index, is_indexed
from accountant.store.store import body_at, question_of_body
from dpserve_verify.errors import InputError
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import encode_base64, whole_number
from dpserve_verify.log import notes
from dpserve_verify.log.entry import Entry, read_entry
from dpserve_verify.log.notes import Checkpoint
from serving.http.routes import Door, in_snapshot, in_thread, page_door, state
from serving.pages.parts.entry_text import LABELS, describe
from serving.pages.parts.ui import page, see_other
from serving.wire import lists
from serving.wire.request_bodies import known_query, query_text

PAGE = 50
MAX_NAMES = 1000  # dataset names that the form suggests
COLUMNS = ("entry", "time", "kind", "words", "text")
TERMS = ("dataset", "kind", "job", "name", "text")


@dataclass(frozen=True)
class SearchTerms:
    """What the form holds, as it was typed."""

    dataset: str = ""
    kind: str = ""
    job: str = ""
    name: str = ""
    text: str = ""

    @property
    def anything(self) -> bool:
        """Tell whether any field is filled in."""
        return self != SearchTerms()

    def to_wanted(self) -> Wanted:
        """Return the terms as `search` takes them. InputError where a number is none."""
        return Wanted(self.dataset, self.kind, _number("job", self.job), self.name, self.text)

    def address(self, before: int | None = None) -> str:
        """Return the page of this search, from below entry `before` on."""
        pairs = {name: getattr(self, name) for name in TERMS if getattr(self, name)}
        pairs |= {} if before is None else {"before": str(before)}
        return "/ui/ledger" + (f"?{urlencode(pairs)}" if pairs else "")


async def entries(request: Request) -> Response:
    """Return a page of the newest entries, or of those that the form asks for."""
    known_query(request, *TERMS, "before", "entry", lists.FORM)
    number = _number("entry", _text(request, "entry"))
    if number is not None:
        return see_other(f"/ui/ledger/{number}")
    terms = SearchTerms(**{name: _text(request, name) for name in TERMS})
    form = lists.form_of(request)
    if form is not None:
        return lists.as_file(form, "entries", COLUMNS, await in_thread(_all, state(request).home, terms.to_wanted()))
    before, home = _number("before", _text(request, "before")), state(request).home
    context: dict[str, Any] = {
        "terms": asdict(terms),
        "most": lists.MAX_LINES,
        "asked": terms,
        "kinds": LABELS,
        "found": (),
        "pager": (None, None),
    }
    names, matches = await in_snapshot(request, _names_and_matches, home, terms, before)
    context["datasets"] = names[:MAX_NAMES]
    if isinstance(matches, InputError):
        return page(request, "ledger.html", refusal=matches, **context)
    context |= {
        "found": [describe(entry) for entry in matches.entries],
        "ledger": matches,
        "pager": _pager(terms, before, matches),
    }
    response = page(request, "ledger.html", **context)
    if not is_indexed(home.ledger.log.database):
        response.background = BackgroundTask(_warm, home)
    return response


def _names_and_matches(home: Home, terms: SearchTerms, before: int | None) -> tuple[list[str], Found | InputError]:
    """Return every dataset's name, and what was looked for, or why there is nothing."""
    database = home.ledger.log.database
    names = dataset_names(database)
    try:
        return names, search(database, terms.to_wanted(), before, PAGE)
    except InputError as error:
        return names, error


def _all(home: Home, wanted: Wanted) -> list[dict[str, Any]]:
    """Return all pages of a search together."""

    def part(before: int | None) -> tuple[list[dict[str, Any]], int | None]:
        matches = search(home.ledger.log.database, wanted, before, lists.PART_LINES)
        return [asdict(describe(entry)) for entry in matches.entries], matches.older

    return lists.all_lines(part)


def _warm(home: Home) -> None:
    """Read what a search needs while the first page is being looked at."""
    database = home.ledger.log.database
    with database.reading() as connection:
        entry_index(database, connection)


def _text(request: Request, name: str) -> str:
    return (query_text(request, name) or "").strip()


def _number(name: str, text: str) -> int | None:
    """Read a typed whole number; None where nothing was typed."""
    if not text:
        return None
    number = whole_number(text)
    if number is None:
        raise InputError(f"{name}={text[:40]!r}: must be a whole number")
    return number


def _entry_number(request: Request) -> int:
    """Return the number in the path. UnknownName where it is none."""
    text = request.path_params["entry"]
    number = whole_number(text)
    if number is None:
        raise UnknownName(f"entry={text[:40]!r}: no such entry", entry=text[:40])
    return number


def _pager(terms: SearchTerms, before: int | None, matches: Found) -> tuple[str | None, str | None]:
    """Return the addresses of the newer and the older page, None where there is none. Back from a search leads to its
    beginning: matches are not counted.
    """
    older = None if matches.older is None else terms.address(matches.older)
    if before is None or before >= matches.size:
        return None, older
    newer = before + PAGE
    return terms.address(None if terms.anything or newer >= matches.size else newer), older


async def entry(request: Request) -> Response:
    """Return the page of an entry: its words, its exact bytes, the other entries of its job, and the proof that it is
    in the ledger.
    """
    known_query(request)
    number = _entry_number(request)
    shown = await in_snapshot(request, _entry, state(request).home, number)
    return page(request, "entry.html", **shown)


def _entry(home: Home, number: int) -> dict[str, Any]:
    database = home.ledger.log.database
    proof, entry, head = _prove(home, number)
    job = number if entry.value["type"] == "reserved" else entry.value.get("reservation")
    related = () if job is None else search(database, Wanted(job=job)).entries[::-1]
    return {
        "entry": describe(entry),
        "pretty": json.dumps(entry.value, indent=2, sort_keys=True),
        "bytes": len(entry.body),
        "leaf": merkle.leaf_hash(entry.body).hex(),
        "related": [describe(related_entry) for related_entry in related],
        "job": job,
        "proof": proof,
        "head": {"size": head.size, "root": encode_base64(head.root)},
        "origin": home.ledger.log.origin,
        "last": head.size - 1,
    }


def _prove(home: Home, number: int) -> tuple[str, Entry, Checkpoint]:
    """Return the entry's `.tlog-proof` against the newest checkpoint, the entry, and that checkpoint."""
    with home.ledger.log.database.reading([question_of_body(number), NEWEST_CHECKPOINT]) as connection:
        note = latest_checkpoint(connection)
        head = notes.parse_checkpoint(note)
        if number >= head.size:
            raise UnknownName(f"entry={number}: the ledger has {head.size} entries, from 0 on", entry=number)
        proof = stored_proofs.inclusion(connection, number, note)
        return proof, read_entry(number, body_at(connection, number)), head


async def proof(request: Request) -> Response:
    """Return the entry's `.tlog-proof`, which holds the entry's bytes, as a file."""
    known_query(request)
    number = _entry_number(request)
    text = (await in_snapshot(request, _prove, state(request).home, number))[0]
    name = f"entry-{number}.tlog-proof"
    headers = {**lists.attachment_header(name), "Cache-Control": "no-store"}
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")


AUDIT = ("audit",)
DOORS = (
    page_door("GET", "/ui/ledger", AUDIT, entries, "The ledger's entries"),
    page_door("GET", "/ui/ledger/{entry}", AUDIT, entry, "An entry and its proof"),
    Door("GET", "/ui/ledger/{entry}/proof", AUDIT, proof, "An entry's proof", media="text/plain", hidden=True),
)
