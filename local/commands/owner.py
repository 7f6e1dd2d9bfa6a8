"""Commands of an owner, whose rows stay with it: say what may be asked, answer a campaign, see what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.keys.trust import PublicKeys
from local.owner import program
from local.owner.founding import NewOwner, check_rows, found_owner
from local.owner.settings import Pinned, read_settings
from serving.cli.terminal import Json, align_columns, note, show

Settings = Annotated[Path, typer.Option("--settings", help="Your owner.toml: rows, ledger, pinned keys, policy.")]
HERE = Path("owner.toml")


def init(
    url: Annotated[str, typer.Option(help="Where campaigns are: https://...")],
    rows: Annotated[str, typer.Option(help="Your rows, a .csv or .parquet, beside the settings.")],
    target: Annotated[str, typer.Option(help="The column that holds the answer: no campaign may ask for another.")],
    feature: Annotated[list[str], typer.Option(help="A column that may stand beside it; once for each.")],
    total_epsilon: Annotated[str, typer.Option(help="The most that all your reports together may cost.")],
    largest_epsilon: Annotated[str, typer.Option(help="The most that one of them may cost.")],
    label: Annotated[list[str] | None, typer.Option("--class", help="A word of the answer; once for each.")] = None,
    between: Annotated[tuple[float, float] | None, typer.Option("--range", help="Ends of a numeric answer.")] = None,
    least_owners: Annotated[int, typer.Option(help="Answer no campaign that asks fewer owners.")] = 1,
    settings: Settings = HERE,
    json: Json = False,
) -> None:
    """Write your owner.toml: where campaigns are, what may be asked about your rows, and what it may cost.

    \b
    dpserve owner init --url https://campaigns.example --rows rows.csv --target answer --class no --class yes --feature a --feature b --total-epsilon 5 --largest-epsilon 2
    """  # noqa: E501
    question = Pinned(target, tuple(label or ()), tuple(feature), between)
    new = NewOwner(url, rows, question, total_epsilon, largest_epsilon, least_owners)
    show(json, {"settings": str(settings), **(fit := found_owner(settings, new))}, _fit(fit))
    note(f"Put the pinned keys of who asks beside {settings.name} as trust.json.")


def check(settings: Settings = HERE, json: Json = False) -> None:
    """Check your rows against what you may be asked: an answer to a campaign never says whether they fit.

    \b
    dpserve owner check --settings owner.toml
    """
    fit = check_rows(settings)
    show(json, fit, _fit(fit))


def _fit(found: dict[str, Any]) -> str:
    if found["problem"]:
        return f"rows: {found['problem']}; a campaign would be answered as by an owner of no rows"
    words = f"rows: {found['rows']}, of which {found['answers_that_fit']} have an answer that may be asked for"
    if found["missing_columns"]:
        words += f"; columns that are missing: {', '.join(found['missing_columns'])}"
    return words


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
    owner = read_settings(settings)
    line = program.answer(owner, campaign, invitation)
    body = {"campaign": line.campaign, "epsilon": str(line.epsilon), "delta": str(line.delta), "sent": line.sent,
            "report": program.number_of_report(line)}  # fmt: skip
    show(json, {**body, **program.summarize(owner)}, program.words(line))


def show_owner(settings: Settings = HERE, json: Json = False) -> None:
    """Show what you have sent, and what it cost you.

    \b
    dpserve owner show --settings owner.toml
    """
    body = program.summarize(read_settings(settings))
    rows = [("CAMPAIGN", "LEARNER", "EPSILON", "DELTA", "DRAWN", "SENT")]
    rows += [(report["campaign"], report["learner"], report["epsilon"], report["delta"], report["drawn"],
              report["sent"] or "not confirmed") for report in body["reports"]]  # fmt: skip
    spent = (
        f"spent: epsilon {body['spent']} of {body['total']}, delta {body['spent_delta']} of {body['total_delta']}; "
        "each report was an index drawn at random, or two shares of which each is noise"
    )
    show(json, body, f"{align_columns(rows)}\n{spent}")


def verify_model(
    path: Annotated[Path, typer.Argument(help="The model's folder, as `dpserve model export` gives it.")],
    settings: Settings = HERE,
    json: Json = False,
) -> None:
    """Verify a model that you helped to make: its certificate, and that it is of the campaign that you answered.

    \b
    dpserve owner verify survey-model --settings owner.toml
    """
    from models.store.loading import load_verified  # loads what serves models, which answering does without

    owner = read_settings(settings)
    certificate = load_verified(path, PublicKeys.from_json(owner.trust.read_bytes())).certificate
    digest = certificate.form.public.hyperparameters.get("definition")
    answered = [report for report in program.summarize(owner)["reports"] if report["definition"] == digest]
    if not answered:
        raise CertificateInvalid(f"model {certificate.model}: is of no campaign that you have answered")
    if str(certificate.epsilon) != answered[0]["epsilon"]:
        raise CertificateInvalid(f"model {certificate.model}: claims epsilon {certificate.epsilon}, and you were asked "
                                 f"for {answered[0]['epsilon']}")  # fmt: skip
    body = {
        "ok": True,
        "model": certificate.model,
        "campaign": answered[0]["campaign"],
        "epsilon": answered[0]["epsilon"],
    }
    show(
        json,
        body,
        f"verified: {certificate.model} is of the campaign {answered[0]['campaign']}, at the epsilon you gave",
    )
