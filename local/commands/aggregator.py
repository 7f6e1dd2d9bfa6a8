"""Commands of an aggregator: one of two who add up what owners sent in shares, and add the whole noise each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from local.aggregator import program
from local.aggregator.rounds import answer_campaign
from local.aggregator.settings import PUBLIC, SETTINGS, create_folder, read_settings
from serving.cli.terminal import Json, align_columns, note, show

Folder = Annotated[Path, typer.Option("--folder", help="Your folder, as `dpserve aggregator init` made it.")]
HERE = Path("aggregator")


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder: keys, settings, ledger.")],
    name: Annotated[str, typer.Option(help="What owners call you: one line.")],
    url: Annotated[str, typer.Option(help="Where campaigns are.")],
    json: Json = False,
) -> None:
    """Set up an aggregator: make its keys, and the public file that campaigns name you by.

    \b
    dpserve aggregator init aggregator --name "Statistics office" --url https://campaigns.example
    """
    public = create_folder(folder, name, url)
    body = {**public.to_json(), "fingerprint": public.fingerprint, "public": str(folder / PUBLIC)}
    show(json, body, f"aggregator {name}: fingerprint {public.fingerprint}, public keys in {folder / PUBLIC}")
    note(f"Put the pinned keys of who asks beside {SETTINGS} as trust.json, and say in it what you agree to.")


def answer(
    campaign: Annotated[str, typer.Argument(help="The campaign's name.")],
    token: Annotated[str, typer.Option(help="Yours, dpa_...", envvar="DPSERVE_AGGREGATOR_TOKEN")],
    folder: Folder = HERE,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the other aggregator.")] = 600.0,
    json: Json = False,
) -> None:
    """Answer a closed campaign: open your shares, add the whole noise to their sum, send it. Again sends the same
    bytes.

    \b
    dpserve aggregator answer survey --token dpa_1_0123abcd --folder aggregator
    """
    line = answer_campaign(read_settings(folder), campaign, token, wait)
    body = {
        "campaign": line.name,
        "owners": line.owners,
        "epsilon": line.epsilon,
        "delta": line.delta,
        "sent": line.sent,
    }
    show(json, body, f"answered {line.name}: the noisy sum of {line.owners} owners' shares, sent {line.sent}")


def show_aggregator(folder: Folder = HERE, json: Json = False) -> None:
    """Show which campaigns you have answered, and with how much noise.

    \b
    dpserve aggregator show --folder aggregator
    """
    body = program.summarize(read_settings(folder))
    rows = [("CAMPAIGN", "EPSILON", "DELTA", "OWNERS", "CHARGED", "SENT")]
    keys = ("name", "epsilon", "delta", "owners", "charged", "sent")
    rows += [tuple(str(campaign[key] or "not yet") for key in keys) for campaign in body["campaigns"]]  # type: ignore[misc]
    show(json, body, align_columns(rows))
