"""Commands of an institution, whose rows stay in a home of its own: answer a campaign, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.home import Home
from local.institution import program
from local.institution.settings import read_settings
from serving.cli.backends.user import require_access, this_user
from serving.cli.terminal import Json, show, show_progress

HERE = Path("institution.toml")


def answer(
    campaign: Annotated[str, typer.Argument(help="The campaign's name.")],
    invitation: Annotated[str, typer.Option(help="Yours, dpi_...", envvar="DPSERVE_INVITATION")],
    settings: Annotated[Path, typer.Option(help="Your institution.toml: whom you trust, dataset, policy.")] = HERE,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the answer of one round.")] = 600.0,
    json: Json = False,
) -> None:
    """Answer a campaign: check it, charge your dataset once, send shares of sums until the last round. Started again,
    it goes on, charged once.

    \b
    dpserve institution answer survey --invitation dpi_0_0123abcd --settings institution.toml
    """
    own, home = read_settings(settings), Home.open()
    require_access(home, "train", dataset=own.dataset)
    with show_progress(f"campaign {campaign}") as progress:
        body = program.answer(home, own, campaign, invitation, this_user(), wait, progress)
    show(
        json, body,
        f"answered {campaign} as institution {body['institution']}: {body['rounds']} rounds; dataset {body['dataset']} "
        f"was charged epsilon {body['epsilon']} and delta {body['delta']}, once, as job {body['job']}",
    )  # fmt: skip
