"""`dpserve dataset register`: a file, a folder, or rows of a database, with a total budget or in a family."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.home import Home
from accountant.ledger.families.row_queries import RowQuery
from dpserve_verify.errors import InputError
from serving.cli.backends.user import require_access, this_user
from serving.cli.datasets import QueryReason, show_as_is
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, note, show_busy
from training.datasets.drafts.registering import register_requested
from training.datasets.opened import RowSource, rows_at
from training.requests.registration import RegistrationRequest


@takes_request(RegistrationRequest, "name")
def register(
    request: RegistrationRequest,
    data: Annotated[str, typer.Option(help="A file, a folder, 'x/*.parquet', s3://bucket/x, or a database's URL.")],
    schema: Annotated[Path | None, typer.Option(help="The public schema, YAML.")] = None,
    query: Annotated[str | None, typer.Option(help="Of a database: what to read, a select.")] = None,
    query_reason: QueryReason = None,
    table: Annotated[str | None, typer.Option(help="Of a database: the whole table.")] = None,
    json: Json = False,
) -> None:
    """Register a dataset: with its total budget, or in the family of others whose people it holds too.

    A refreshed, filtered or joined copy is about the same people: it shares their budget and gets none of its own.

    \b
    dpserve dataset register adult --data adult.parquet --schema adult.yaml --epsilon 3 --delta 1e-5 --holdout 0.2
    dpserve dataset register taxis --data 's3://rows/taxis/*.parquet' --schema taxis.yaml --epsilon 3 --delta 1e-5
    dpserve dataset register adult-2027 --data new.parquet --schema adult.yaml --family adult
    dpserve dataset register visits --data env:URL --table visits --schema visits.yaml --epsilon 3 --delta 1e-5
    """
    if schema is None:
        raise InputError(
            "schema: --schema FILE says what is public; on a terminal, dpserve dataset guide FILE asks for it; "
            "dpserve schema draft FILE --data writes one to fill in"
        )
    home = Home.open()
    request.check()
    for member in request.family:
        require_access(home, "steward", dataset=home.ledger.member(member))
    access = require_access(home) if request.family else require_access(home, "steward")
    source = RowSource(data, query, table, query_reason)
    row_query = None if source.stated is None else RowQuery.of(source.stated, query_reason, this_user())
    with (
        show_busy(f"packing the rows of {request.name}"),
        rows_at(home, source, schema, request.unit) as (rows, origin),
    ):
        dataset = register_requested(home, request, rows, schema, this_user(), origin, row_query, access)
    if dataset.holdout is None and not request.family and request.holdout is None:
        note("All rows are for training. With --holdout 0.2 a fifth of the people would be kept aside, with a budget")
        note("of their own, so that models can be evaluated on them; that cannot be declared later.")
    show_as_is(home, dataset, json)
