"""`dpserve schema refine`: a schema that fits, from a profile that was paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.certificates.profile import PROFILE, Profile
from accountant.home import Home
from dpserve_verify.errors import InputError
from models.profile.stated import check
from serving.cli.certificates import PROFILE_SUFFIX, proof_beside, read_trusted_keys
from serving.cli.data.schema import SchemaFile, schema_bytes
from serving.cli.terminal import Json, align_columns, note, show, write_out
from training.measuring.profile.refine import refine as refined_by


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
    refined = refined_by(schema_bytes(schema), _profile(profile, trust))
    if out is not None:
        write_out(out, refined.text)
    rows = [("FEATURE", "WAS", "NOW", "WHY"), *((c["feature"], c["was"], c["now"], c["why"]) for c in refined.changes)]
    table = align_columns(rows) if refined.changes else "nothing to refine"
    body = {"schema": refined.text, "changes": [dict(change) for change in refined.changes]}
    show(json, {**body, "out": None if out is None else str(out)}, refined.text.rstrip("\n") if out is None else table)
    if out is None:
        note(table)


def _profile(text: str, trust: Path | None) -> Profile:
    if text.isascii() and text.isdigit():
        profile = PROFILE.open(Home.open(), int(text))[2]
    elif text.endswith(PROFILE_SUFFIX):
        envelope, proof = proof_beside(Path(text))
        profile = PROFILE.verify(envelope, proof, read_trusted_keys(trust))
    else:
        raise InputError(f"profile={text[:80]}: must be a job's number, or a file that ends in {PROFILE_SUFFIX}")
    check(profile)
    return profile
