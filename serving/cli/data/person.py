"""`dpserve person`: what the rows of one person could have moved, for whoever asks the house by Article 15."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpserve_verify.audit.person import verify_person
from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from dpserve_verify.keys.dsse import ENVELOPE_LIMIT
from serving.cli.backend import backend
from serving.cli.certificates import WRITERS
from serving.cli.complete import Name
from serving.cli.terminal import Json, show_or_write
from serving.operations import people

SIGNED = ".dsse.json"


def person(
    name: Name,
    blocks: Annotated[
        str | None, typer.Option(help="Of which rows: blocks 3-7, or the month or day they came in, like 2026-03.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A file for the signed statement (.dsse.json), or its page (.html, .md, .txt).")
    ] = None,
    json: Json = False,
) -> None:
    """State which releases one person's rows could have moved, and how much at most. Signed, made from the ledger
    alone: it is the same for everybody, and does not say whether somebody is in the data.

    \b
    dpserve person visits --out visits.html
    dpserve person visits --blocks 2026-03 --out visits.dsse.json
    dpserve verify visits.dsse.json --ledger exported
    """
    writer = None if out is None else WRITERS.get(out.suffix)
    if out is not None and writer is None and not out.name.endswith(SIGNED):
        raise InputError(f"out={out.name}: must end in one of {', '.join([SIGNED, *WRITERS])}")
    answer = backend().ask(people.show_person, name=name, blocks=blocks)
    envelope = canonical.encode(answer.envelope, ENVELOPE_LIMIT)
    verified = verify_person(envelope, backend().ledger.trusted_keys())
    text = answer.page if out is None else envelope.decode() if writer is None else writer(verified.page)
    show_or_write(out, text, {**answer.to_json(), "out": None}, json)
