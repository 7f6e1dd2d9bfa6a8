"""Commands on schemas: check a file against one, refine one by a profile, and make rows up from one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.certificates import profile as profiles
from accountant.certificates.profile import Profile
from accountant.errors import InputError, SchemaError
from accountant.home import Home
from models.profile.stated import check as check_profile
from serving.cli.certificates import PROFILE_SUFFIX, proof_beside, trusted
from serving.cli.terminal import Json, aligned, note, show
from training.profiles.refine import refine as refined_by
from training.profiles.release import profile_of
from training.rows.file_check import check_file
from training.rows.made_up import write_made_up
from training.rows.schema import parse_schema

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
    problems = [each.to_json() for each in check_file(parse_schema(_read(schema)), data)]
    rows = [("COLUMN", "FOUND", "ROWS", "REMEDY")]
    for each in problems:
        more = ", .." if each["count"] > len(each["rows"]) else ""
        rows.append(
            (each["column"] or "(the file)", each["found"], ", ".join(map(str, each["rows"])) + more, each["remedy"])
        )
    text = aligned(rows) if problems else f"{data.name} can be registered with {schema.name}"
    show(json, {"ok": not problems, "problems": problems}, text)
    if problems:
        raise typer.Exit(2)


def refine(
    schema: SchemaFile,
    profile: Annotated[str, typer.Option(help="A profile.dsse.json with its proof beside it, or its job's number.")],
    out: Annotated[Path | None, typer.Option(help="Write the new schema to a file; stdout when left out.")] = None,
    trust: Annotated[Path | None, typer.Option(help="The pinned keys (trust.json); this home's when left out.")] = None,
    json: Json = False,
) -> None:
    """Propose a schema that fits the data, from a profile that was paid for. Free.

    Ranges that are far too wide shrink to where rows are, cut points go where many rows are, categories that the noise
    does not tell from none become `other`. The profile is verified first. The rows are registered anew with it, in the
    same family.

    \b
    dpserve schema refine --schema adult.yaml --profile 12 --out adult-refined.yaml
    """
    found = refined_by(_read(schema), _profile(profile, trust))
    if out is not None:
        try:
            out.write_text(found.text, "utf-8")
        except OSError as error:
            raise InputError(f"out={out}: cannot be written ({error.strerror})") from None
    rows = [("FEATURE", "WAS", "NOW", "WHY"), *((c["feature"], c["was"], c["now"], c["why"]) for c in found.changes)]
    told = aligned(rows) if found.changes else "nothing to refine"
    body = {"schema": found.text, "changes": [dict(each) for each in found.changes]}
    show(json, {**body, "out": None if out is None else str(out)}, found.text.rstrip("\n") if out is None else told)
    if out is None:
        note(told)


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
    write_made_up(parse_schema(_read(schema)), rows, out, seed)
    body = {"out": str(out), "rows": rows, "seed": seed, "made_up": True}
    show(json, body, f"{rows} rows made up from {schema.name}, written to {out}")


def _profile(text: str, trust: Path | None) -> Profile:
    if text.isascii() and text.isdigit():
        found = profile_of(Home.open(), int(text))[2]
    elif text.endswith(PROFILE_SUFFIX):
        envelope, proof = proof_beside(Path(text))
        found = profiles.verify(envelope, proof, trusted(trust))
    else:
        raise InputError(f"profile={text[:80]}: must be a job's number, or a file that ends in {PROFILE_SUFFIX}")
    check_profile(found)
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SchemaError(f"schema={path}: cannot be read ({error.strerror})") from None
