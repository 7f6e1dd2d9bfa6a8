"""`dpserve synthesize`: a synthetic table of a dataset, from a profile that is paid for, or was."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.ledger.families.left import left_words
from dpserve_verify.errors import InputError
from serving.cli.backend import backend
from serving.cli.data.profile import show_plan
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, align_columns, check_out, note, show, show_busy
from training.datasets.made_up import SYNTHETIC, check_name
from training.requests import AUTO, ProfileRequest


@takes_request(ProfileRequest, "dataset", without=("pairs",), optional=("epsilon",))
def synthesize(
    asked: dict[str, Any],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; its name says synthetic: adult.synthetic.parquet, or .csv.")
    ] = None,
    from_profile: Annotated[
        int | None, typer.Option(help="From this profile, by its job's number, at no price; in place of --epsilon.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="How many rows; as many as were counted when left out.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows of a profile.")] = 0,
    quality: Annotated[bool, typer.Option("--quality", help="How near the rows come, column by column.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost; spend nothing.")] = False,
    json: Json = False,
) -> None:
    """Write a synthetic table: rows that are nobody's, with the columns of a dataset and what they say together.

    A profile is paid for, which counts every column, and pairs of them that are chosen privately: each column with the
    target, and the others along a tree. Rows follow from it for nothing, as often as is liked. Statement, charge and
    proof are the profile's; the file is marked, and says which it is.

    \b
    dpserve synthesize adult --epsilon 1 --plan
    dpserve synthesize adult --epsilon 1 --out adult.synthetic.parquet --quality
    dpserve synthesize adult --from-profile 12 --rows 1000 --out small.synthetic.csv
    """
    measurements, body = backend().measurements, dict[str, Any]()
    if from_profile is None:
        if "epsilon" not in asked:
            raise InputError("epsilon: what it may cost, or --from-profile JOB, a profile that was paid for")
        request = ProfileRequest.of({"around": AUTO} | asked)
        if plan:
            return show_plan(measurements.plan(request), json)
    elif asked.keys() - {"dataset"} or plan:
        raise InputError("from-profile: costs nothing, and takes no option of a price")
    if out is None:
        raise InputError("out: name the file to write, adult.synthetic.parquet for instance")
    check_name(out, SYNTHETIC)
    check_out(out, (".parquet", ".csv"))
    if from_profile is None:
        with show_busy(f"counting the rows of {asked['dataset']}"):
            body, _ = measurements.measure(request)
        from_profile = body["job"]
    made = measurements.synthesize(asked["dataset"], from_profile, out, rows, seed)
    lines = [
        f"{found['count']} {name}: {found['off']:.4f} off what was released on average, in total variation, of which "
        f"the noise of the release alone would make {found['noise']:.4f}"
        for name, found in made["summary"].items()
    ]
    table = [("COLUMNS", "OFF", "NOISE ALONE")]
    table += [(", ".join(line["columns"]), f"{line['off']:.4f}", f"{line['noise']:.4f}") for line in made["quality"]]
    text = [f"{made['rows']:,} synthetic rows from profile {from_profile}: {out}", *lines]
    left = {"left": body["left"], "statement": body["statement"]} if body else {}
    show(json, {**made, "out": str(out), **left}, "\n".join([*text, *(["", align_columns(table)] if quality else [])]))
    if body:
        note(f"statement {body['statement']}; {left_words(body['left'], 'profile')}")
