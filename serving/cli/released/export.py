"""`dpserve model export`: a folder that travels, or a model where it is used: as SQL, Python or C, in MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accountant.errors import NameTaken
from accountant.system.lazy_import import later
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.errors import InputError
from dpserve_verify.keys.dsse import parse
from dpserve_verify.system.files import PUBLIC, write_new
from models.programs.hub_card import hub_card
from models.store.bundle import files_of, write_bundle, write_folder
from serving.cli.backend import backend
from serving.cli.certificates import card_with
from serving.cli.complete import Model
from serving.cli.terminal import Json, show

if TYPE_CHECKING:
    from models.onnx import portable as portable_form
    from models.programs import files as programs
    from models.programs import mlflow_folder
    from models.store.loading import OpenedModel, VerifiedModel
    from serving.cli.backends.abstract import Bundles
else:
    portable_form = later("models.onnx.portable")  # loads onnx
    programs = later("models.programs.files")
    mlflow_folder = later("models.programs.mlflow_folder")


class Form(StrEnum):
    """What a model is exported as."""

    bundle = "bundle"
    sql = "sql"
    python = "python"
    c = "c"
    mlflow = "mlflow"
    huggingface = "huggingface"


def export(
    name: Model,
    out: Annotated[Path, typer.Option(help="A new folder; of --as sql, python or c a new file.")],
    form: Annotated[
        Form, typer.Option("--as", help="Its files, one program that answers as they do, or a folder of a hub.")
    ] = Form.bundle,
    keep: Annotated[
        list[str] | None, typer.Option(help="With --as sql: a column to give before the answers, such as an id.")
    ] = None,
    witnessed: Annotated[
        bool, typer.Option("--witnessed", help="With a proof against the newest checkpoint that witnesses cosigned.")
    ] = False,
    portable: Annotated[
        bool, typer.Option("--portable", help="With portable.onnx, in plain ONNX operators, for other runtimes.")
    ] = False,
    json: Json = False,
) -> None:
    """Copy a verified model and its certificate into a new folder that can travel, or write it for where it is used.

    \b
    dpserve model export adult --out adult-model
    dpserve model export adult --out adult-model --portable
    dpserve model export adult --as sql --keep id --out adult.sql
    dpserve model export adult --as python --out adult.py
    dpserve model export adult --as c --out adult.c
    dpserve model export adult --as mlflow --out adult-mlflow
    dpserve model export adult --as huggingface --out adult-hub
    """
    if form is not Form.bundle and (witnessed or portable):
        raise InputError("witnessed, portable: go with the files of a model, not with --as")
    if keep and form is not Form.sql:
        raise InputError("keep: goes with --as sql")
    bundles = backend().bundles
    opened = bundles.open(name)
    opened.verified.runtime  # noqa: B018 - ModelInvalid: no model travels that does not open
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    if form in (Form.bundle, Form.huggingface):
        files = _write_files(bundles, opened, out, witnessed, portable, form is Form.huggingface)
    elif form is Form.mlflow:
        files = _write_mlflow(opened.verified, opened.reference, out)
    else:
        files = [_write_program(opened.verified, opened.reference, out, form, keep or ())]
    body = {"model": opened.reference, "out": str(out), "files": files}
    show(json, body, f"{body['model']} written to {out}")


def _write_files(
    bundles: Bundles, opened: OpenedModel, out: Path, witnessed: bool, portable: bool, for_hub: bool
) -> list[str]:
    """Write the folder that a certificate signs, with what is asked for besides. Return the names of its files."""
    bundle = bundles.with_witnessed_proof(opened) if witnessed else opened.verified.travelling
    more = portable_form.portable_files(opened.verified.ensemble, bundle.onnx) if portable else {}
    signed = bundles.signed_statements(opened)
    card = card_with(bundle.card, [envelope for _, envelope, _ in signed])
    if for_hub:
        about = {"model": opened.reference, **_stated(opened.verified)}
        more["README.md"] = hub_card(opened.verified.ensemble, card.decode(), about).encode()
    write_bundle(out.absolute(), replace(bundle, card=card))
    for job, envelope, proof in signed:
        more |= {f"worth-{job}.dsse.json": envelope, f"worth-{job}.tlog-proof": proof}
    for job, envelope, proof in bundles.signed_attacks(opened):
        more |= {f"attack-{job}.dsse.json": envelope, f"attack-{job}.tlog-proof": proof}
    for name, content in more.items():
        write_new(out.absolute() / name, content, PUBLIC)
    return [*FILES, *more]


def _write_program(verified: VerifiedModel, reference: str, out: Path, form: Form, keep: Sequence[str]) -> str:
    """Write one file that answers as the model does. Its head says which certificate vouches for the model."""
    stated = _stated(verified)
    head = (
        f"{reference}, written by dpserve as {form}: it answers as model.onnx does, which its certificate vouches for.",
        f"model.onnx: sha256 {stated['sha256']}",
        f"certificate: sha256 {stated['statement']}, entry {stated['entry']} of the ledger",
        stated["promise"],
    )
    name, graph = reference.partition("@")[0], verified.travelling.onnx
    content = programs.program_file(form, verified.ensemble, graph, head, name, keep)
    try:
        write_new(out.absolute(), content, PUBLIC)
    except FileExistsError:
        raise NameTaken(f"{out}: exists already") from None
    return out.name


def _stated(verified: VerifiedModel) -> dict[str, str]:
    """Return what an export says of the certificate: the sha256 of model and statement, its entry, its promise."""
    certificate = verified.certificate
    return {
        "sha256": certificate.sha256,
        "statement": digest(parse(verified.travelling.envelope).payload),
        "entry": str(certificate.issued),
        "promise": " ".join(certificate.line.split()),
    }


def _write_mlflow(verified: VerifiedModel, reference: str, out: Path) -> list[str]:
    """Write a new folder that MLflow loads, whole or not at all. Return the names of its files."""
    stated = {"model": reference, **_stated(verified)}
    files = mlflow_folder.mlflow_files(verified.ensemble, files_of(verified.travelling), stated)
    write_folder(out.absolute(), files)
    return [*files]
