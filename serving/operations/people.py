"""What people are told whose rows may be in a dataset: the same for everybody, signed, from the public ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import Field
from pydantic.dataclasses import dataclass

from accountant.system.lazy_import import later
from serving.operations import Caller, operation
from serving.operations.answers import Answer

if TYPE_CHECKING:
    from accountant.audit import person
    from dpserve_verify.certificates import written_page
else:
    person = later("accountant.audit.person")  # the start of a server needs neither
    written_page = later("dpserve_verify.certificates.written_page")

Blocks = Annotated[str | None, Field(description="of which rows: 3-7, or a month like 2026-03; all when left out")]
Dsse = Annotated[dict[str, Any], Field(description="the signed statement, in its DSSE envelope")]
Stated = Annotated[dict[str, Any], Field(description="what it says: releases, bound, total, ledger, words")]


@dataclass(frozen=True)
class PersonAnswer(Answer):
    """What one person's rows could have moved, and by how much at most."""

    dataset: str
    epsilon: Annotated[str, Field(description="of all of it so far, at most")]
    delta: str
    relation: str
    person: Stated
    page: Annotated[str, Field(description="the same for people")]
    envelope: Dsse


@operation("GET", "/v1/datasets/{name}/person", "steward", "audit")
def show_person(caller: Caller, name: str, blocks: Blocks = None) -> PersonAnswer:
    """State, signed, which releases one person's rows could have moved; not whether anybody is in the data."""
    envelope, found = person.state_person(caller.home, name, blocks)
    return PersonAnswer(**found.to_json(), page=written_page.to_text(found.page), envelope=orjson.loads(envelope))


OPERATIONS = (show_person,)
