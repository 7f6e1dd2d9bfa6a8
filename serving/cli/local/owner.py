"""Commands of an owner, who trusts nobody: answer a campaign, and see what was sent and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.errors import CertificateInvalid
from serving.cli.terminal import Json, aligned, show
from training.owner import program
from training.owner.settings import read_settings

Settings = Annotated[Path, typer.Option("--settings", help="Your owner.toml: rows, ledger, pinned keys, policy.")]
HERE = Path("owner.toml")


def answer(
    campaign: Annotated[str, typer.Argument(help="The campaign's name.")],
    invitation: Annotated[str, typer.Option(help="Yours, dpi_...", envvar="DPSERVE_INVITATION")],
    settings: Settings = HERE,
    json: Json = False,
) -> None:
    """Answer a campaign: check it, charge your own ledger, draw one report, send it. Again sends the same bytes.

    \b
    dpserve owner answer survey --invitation dpi_17_0123abcd --settings owner.toml
    """
    own = read_settings(settings)
    line = program.answer(own, campaign, invitation)
    body = {"campaign": line.campaign, "epsilon": str(line.epsilon), "delta": str(line.delta), "sent": line.sent,
            "report": program.said(line)}  # fmt: skip
    show(json, {**body, **program.told(own)}, program.words(line))


def show_owner(settings: Settings = HERE, json: Json = False) -> None:
    """Show what you have sent, and what it cost you.

    \b
    dpserve owner show --settings owner.toml
    """
    body = program.told(read_settings(settings))
    rows = [("CAMPAIGN", "LEARNER", "EPSILON", "DELTA", "DRAWN", "SENT")]
    rows += [(each["campaign"], each["learner"], each["epsilon"], each["delta"], each["drawn"],
              each["sent"] or "not confirmed") for each in body["reports"]]  # fmt: skip
    spent = (
        f"spent: epsilon {body['spent']} of {body['total']}, delta {body['spent_delta']} of {body['total_delta']}; "
        "each report was an index drawn at random, or two shares of which each is noise"
    )
    show(json, body, f"{aligned(rows)}\n{spent}")


def verify_model(
    path: Annotated[Path, typer.Argument(help="The model's folder, as `dpserve model export` gives it.")],
    settings: Settings = HERE,
    json: Json = False,
) -> None:
    """Verify a model that you helped to make: its certificate, and that it is of the campaign that you answered.

    \b
    dpserve owner verify survey-model --settings owner.toml
    """
    from accountant.keys.trust import PublicKeys  # these load what serves models, which answering does without
    from models.store.loading import load_verified

    own = read_settings(settings)
    certificate = load_verified(path, PublicKeys.from_json(own.trust.read_bytes())).certificate
    digest = certificate.form.public.hyperparameters.get("definition")
    known = [each for each in program.told(own)["reports"] if each["definition"] == digest]
    if not known:
        raise CertificateInvalid(f"model {certificate.model}: is of no campaign that you have answered")
    if str(certificate.epsilon) != known[0]["epsilon"]:
        raise CertificateInvalid(f"model {certificate.model}: claims epsilon {certificate.epsilon}, and you were asked "
                                 f"for {known[0]['epsilon']}")  # fmt: skip
    body = {"ok": True, "model": certificate.model, "campaign": known[0]["campaign"], "epsilon": known[0]["epsilon"]}
    show(
        json, body, f"verified: {certificate.model} is of the campaign {known[0]['campaign']}, at the epsilon you gave"
    )
