"""`dpserve dataset register`: a file, a folder, or rows of a database, with a total budget or in a family."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from accountant.home import Home
from accountant.ledger.families.row_queries import RowQuery
from dpserve_verify.errors import InputError
from serving.cli.backends.user import require_access, this_user
from serving.cli.datasets import DatabaseQuery, DatabaseTable, QueryReason, RowsData, show_as_is
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, align_columns, ask, note, read_yes, show_busy
from training.datasets.drafts.registering import register_requested
from training.datasets.opened import RowSource, rows_at
from training.requests.registration import RegistrationRequest
from training.rows.tables.file_check import FileCheck


@takes_request(RegistrationRequest, "name")
def register(
    request: RegistrationRequest,
    data: RowsData,
    schema: Annotated[Path | None, typer.Option(help="The public schema, YAML.")] = None,
    query: DatabaseQuery = None,
    query_reason: QueryReason = None,
    table: DatabaseTable = None,
    json: Json = False,
) -> None:
    """Register a dataset: with its total budget, or in the family of others whose people it holds too.

    A refreshed, filtered or joined copy is about the same people: it shares their budget and gets none of its own.

    \b
    dpserve dataset register adult --data adult.parquet --schema adult.yaml --epsilon 3 --delta 1e-6 --holdout 0.2
    dpserve dataset register taxis --data 's3://rows/taxis/*.parquet' --schema taxis.yaml --epsilon 3 --delta 1e-6
    dpserve dataset register adult-2027 --data new.parquet --schema adult.yaml --family adult
    dpserve dataset register visits --data env:URL --table visits --schema visits.yaml --epsilon 3 --delta 1e-6
    """
    if schema is None:
        raise InputError(
            "schema: --schema FILE says what is public; on a terminal, dpserve dataset guide FILE asks for it; "
            "dpserve schema draft FILE --data writes one to fill in"
        )
    register_source(request, RowSource(data, query, table, query_reason), schema, json=json)


def register_source(
    request: RegistrationRequest, source: RowSource, schema: Path, json: bool = False, is_shown: bool = False
) -> None:
    """Register rows, and show the dataset. What becomes of each column's cells is shown before anything is entered,
    unless the steward has seen it (`is_shown`), and what is seldom meant is asked: on a terminal; elsewhere the request
    must answer.
    """
    home = Home.open()
    request.check()
    for member in request.family:
        require_access(home, "steward", dataset=home.ledger.member(member))
    access = require_access(home) if request.family else require_access(home, "steward")
    row_query = None if source.stated is None else RowQuery.of(source.stated, source.reason, this_user())
    with ExitStack() as busy:
        busy.enter_context(show_busy(f"packing the rows of {request.name}"))

        def show_counts(check: FileCheck) -> None:
            busy.close()  # the spinner writes over a question
            if not (is_shown or json):
                note(align_columns(check.columns_table()))
                note(check.words())
            if json or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
                check.require_meant(request.as_read)
            elif not request.as_read:
                _confirm(request.name, check, is_shown)

        with rows_at(home, source, schema, request.unit) as (rows, origin):
            dataset = register_requested(
                home, request, rows, schema, this_user(), origin, row_query, access, show_counts
            )
    if dataset.holdout is None and not request.family and request.holdout is None:
        note("All rows are for training. With --holdout 0.2 a fifth of the people would be for measuring models, with")
        note("a budget of their own; that cannot be declared later.")
    show_as_is(home, dataset, json)


def _confirm(name: str, check: FileCheck, is_shown: bool) -> None:
    """Ask whether what is seldom meant is meant, and many clipped cells. InputError where the answer is no."""
    if check.questions() and not ask(f"Register {name} so, permanently (yes or no)", "no", read_yes):
        remedies = "; ".join(check.questions().values())
        raise InputError(f"dataset={name}: not registered; {remedies}")
    if not is_shown and (clipped := check.mostly_clipped()):
        note(f"Half of the cells or more lie outside of the range: {', '.join(clipped)}.")
        if ask(f"Register {name} so, permanently (yes or no)", "no", read_yes) is False:
            raise InputError(
                f"dataset={name}: not registered; declare other ranges, or say `outside: expected` of these columns"
            )
