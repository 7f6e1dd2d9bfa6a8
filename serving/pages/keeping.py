"""What stewards, promoters and admins change from the pages: notes, what lists leave out, certificates and keys."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access import key_life
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.keys import opening
from accountant.ledger.archive import archive
from accountant.ledger.families.records import Why
from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.formats.canonical import whole_number
from dpserve_verify.log.proofs import parse_proof
from models.store.bundle import ModelStore, check_numbered
from models.store.noted import change_note
from models.store.renewal import renew_proofs
from serving.http.routes import access, in_snapshot, in_thread, page_door, state
from serving.pages.parts.ui import form_fields, page, see_other
from serving.wire.request_bodies import known_query

THINGS = {"datasets": "dataset", "models": "model"}


def _thing(request: Request) -> tuple[str, str]:
    """Return what the path names: "dataset" or "model", and its name."""
    return THINGS[request.url.path.split("/")[2]], request.path_params["name"].partition("@")[0]


async def set_note(request: Request) -> Response:
    """Put another note and other tags in the place of those of a dataset or a model."""
    fields = await form_fields(request, "text", "tags")
    kind, name = _thing(request)
    text, tags = fields["text"].replace("\r\n", "\n"), fields["tags"].split(",")
    await in_thread(change_note, state(request).home, kind, name, text, tags)
    return see_other(f"/ui/{kind}s/{request.path_params['name']}")


async def set_archived(request: Request) -> Response:
    """Leave a dataset or a model out of lists, or end that."""
    fields = await form_fields(request, "why", "ends")
    kind, name = _thing(request)
    why = Why(access(request).principal, _reason(fields["why"]))
    await in_thread(archive, state(request).home.ledger, kind, name, why, bool(fields["ends"]))
    return see_other(f"/ui/{kind}s/{request.path_params['name']}")


def _reason(text: str) -> str:
    if not text.strip():
        raise InputError("why: say why; it stays in the ledger permanently")
    return text.strip()


async def revoke(request: Request) -> Response:
    """Revoke the certificate of a version, permanently."""
    fields = await form_fields(request, "version", "why")
    name, version = request.path_params["name"], fields["version"]
    check_numbered(f"{name}@{version}")
    why, by = _reason(fields["why"]), access(request).principal
    done = await in_thread(_revoke, state(request).home, f"{name}@{version}", by, why)
    return see_other(f"/ui/models/{name}?placed={done}")


def _revoke(home: Home, reference: str, by: str, why: str) -> int:
    proof = read_bundle(ModelStore(home.models).resolve(reference)).proof
    return key_life.revoke(home, parse_proof(proof.decode("utf-8", "replace")).index, by, why)


async def show_keys(request: Request) -> Response:
    """Return the page of the keys that ever signed."""
    known_query(request)
    return await _keys_page(request)


async def _keys_page(request: Request, problem: DpserveError | None = None) -> Response:
    log = state(request).home.ledger.log
    rows, size = await in_snapshot(request, lambda: (opening.keys_of(log.database), log.size()))
    keys = [
        {"role": row.role, "keyid": row.keyid, "first": row.first, "until": row.until, "state": row.ended or "good"}
        for row in sorted(rows, key=lambda row: (row.role, row.first), reverse=True)
    ]
    return page(request, "keys.html", refusal=problem, keys=keys, size=size)


async def change_keys(request: Request) -> Response:
    """Put a new key in force, or say that others have one."""
    fields = await form_fields(request, "what", "role", "keyid", "after", "why")
    try:
        await in_thread(_change_keys, state(request).home, fields, access(request).principal)
    except DpserveError as error:
        return await _keys_page(request, error)
    return see_other("/ui/keys")


def _change_keys(home: Home, fields: dict[str, str], by: str) -> Any:
    why = _reason(fields["why"])
    if fields["what"] == "rotate":
        if fields["role"] == "issuer":
            return key_life.rotate(home, "issuer", by, why)
        if fields["role"] != "log":
            raise InputError("role: must be issuer or log")
        return key_life.rotate(home, "log", by, why)
    if fields["what"] != "compromised":
        raise InputError("what: must be rotate or compromised")
    after = whole_number(fields["after"].strip())
    if after is None:
        raise InputError("after: must be the number of the last entry known to be from before; 0: none")
    if fields["keyid"] not in {row.keyid for row in opening.keys_of(home.ledger.log.database)}:
        raise UnknownName(f"keyid={fields['keyid'][:80]!r}: there is no such key")
    key_life.mark_compromised(home, fields["keyid"], after, by, why)
    return renew_proofs(ModelStore(home.models), home.trust, home.ledger.log.proof)


ADMIN = ("admin",)
DOORS = (
    page_door("GET", "/ui/keys", ADMIN, show_keys, "The keys"),
    page_door("POST", "/ui/keys", ADMIN, change_keys, "Change the keys", 303),
    page_door("POST", "/ui/models/{name}/revoke", ADMIN, revoke, "Revoke a certificate", 303),
    *(
        page_door("POST", f"/ui/{place}/{{name}}/{what}", scopes, answer, says, 303)
        for place, scopes in (("datasets", ("steward",)), ("models", ("promote",)))
        for what, answer, says in (("note", set_note, "Write a note"), ("archive", set_archived, "Archive it"))
    ),
)
