"""Commands on schemas that need no home: check a file against one, and make rows up from one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.errors import SchemaError
from serving.cli.terminal import Json, align_columns, show, show_busy
from training.datasets.file_check import check_file
from training.datasets.made_up import write_made_up
from training.rows.schema.schema import parse_schema

SchemaFile = Annotated[Path, typer.Option(help="The schema, YAML.")]


def check(
    schema: Annotated[Path, typer.Argument(help="The schema, YAML.")],
    data: Annotated[Path, typer.Option(help="The rows, .parquet or .csv.")],
    json: Json = False,
) -> None:
    """Check a file against a schema before it is registered: every problem at once. Nothing is stored or spent.

    Rows are counted as a spreadsheet does, the header being row 1. What was found is told in kind, never as it stands.
    Exit code 2 where there are problems.

    \b
    dpserve schema check adult.yaml --data adult.csv
    """
    with show_busy("checking every row"):
        result = check_file(parse_schema(schema_bytes(schema)), data)
    fits = f"{data.name} can be registered with {schema.name}"
    end = align_columns(result.problems_table()) if result.problems else fits
    text = f"{align_columns(result.columns_table())}\n{result.words()}\n{end}"
    show(json, result.to_json(), text)
    if result.problems:
        raise typer.Exit(2)


def sample(
    schema: SchemaFile,
    out: Annotated[Path, typer.Option(help="The file to write; its name says made-up: rows.made-up.parquet, or .csv.")],
    rows: Annotated[int, typer.Option(help="How many rows.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.")] = 0,
    json: Json = False,
) -> None:
    """Make rows up from a schema alone, to try programs with before anything is spent. Free.

    They are nobody's: even over the declared ranges and values, some missing, some not listed. The file is marked, and
    `dataset register` refuses it unless it is told --made-up.

    \b
    dpserve schema sample --schema adult.yaml --rows 1000 --out adult.made-up.parquet
    """
    write_made_up(parse_schema(schema_bytes(schema)), rows, out, seed)
    body = {"out": str(out), "rows": rows, "seed": seed, "made_up": True}
    show(json, body, f"{rows} rows made up from {schema.name}, written to {out}")


def schema_bytes(path: Path) -> bytes:
    """Read a schema's file. Raises SchemaError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SchemaError(f"schema={path}: cannot be read ({error.strerror})") from None
