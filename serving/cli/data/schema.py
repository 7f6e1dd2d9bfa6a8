"""Commands on schemas that need no home: check a file against one, and make rows up from one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.errors import SchemaError
from serving.cli.terminal import Json, align_columns, show
from training.datasets.made_up import write_made_up
from training.planning.first_plan import check_first_job
from training.rows.schema.schema import parse_schema
from training.rows.tables.file_check import check_file

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
    check_first_job(parsed := parse_schema(schema_bytes(schema)))
    problems = [problem.to_json() for problem in check_file(parsed, data)]
    rows = [("COLUMN", "FOUND", "ROWS", "REMEDY")]
    for problem in problems:
        dots = ", .." if problem["count"] > len(problem["rows"]) else ""
        rows.append(
            (
                problem["column"] or "(the file)",
                problem["found"],
                ", ".join(map(str, problem["rows"])) + dots,
                problem["remedy"],
            )
        )
    text = align_columns(rows) if problems else f"{data.name} can be registered with {schema.name}"
    show(json, {"ok": not problems, "problems": problems}, text)
    if problems:
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
