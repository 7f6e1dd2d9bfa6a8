"""`dpserve model show` and `export`: a verified model, what its certificate says, and a folder that travels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.system.lazy_import import later
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import PUBLIC, write_new
from models.features.features import number_text
from models.store.bundle import write_bundle
from models.worth.words import short_worth
from serving.cli.backend import backend
from serving.cli.certificates import card_with, show_page, show_record
from serving.cli.complete import Model
from serving.cli.terminal import Json, align_columns, show

if TYPE_CHECKING:
    from models.onnx import portable as portable_form
else:
    portable_form = later("models.onnx.portable")  # loads onnx


def show_model(
    name: Model,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="The certificate in plain words, on one page.")
    ] = False,
    registry: Annotated[
        bool, typer.Option("--registry", help="A record for the Differential Privacy Deployments Registry, in YAML.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the page (.txt, .md, .html) or the record (.yaml) to a file.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a model: what it reads, what it answers, what its certificate says.

    \b
    dpserve model show adult
    dpserve model show adult --certificate --out adult.html
    dpserve model show adult --registry --out adult.yaml
    """
    if certificate and registry:
        raise InputError("certificate, registry: choose one")
    if out is not None and not (certificate or registry):
        raise InputError("out: goes with --certificate or --registry")
    bundles = backend().bundles
    opened = bundles.open(name)
    verified = opened.verified
    if certificate:
        return show_page(verified.certificate, out, json, bundles.growth_since(opened))
    if registry:
        return show_record(verified.certificate, out, json)
    ensemble = verified.ensemble
    features = [feature.to_json() for feature in ensemble.features]
    body: dict[str, Any] = {"model": opened.reference, "target": ensemble.target, "classes": list(ensemble.classes)}
    body["target_range"] = ensemble.target_range
    claim, statements = verified.certificate.to_json(), bundles.statements(opened)
    ends = ensemble.target_range
    interval = f"a number from {number_text(ends[0])} to {number_text(ends[1])}" if ends else ""
    lines = [
        ("model", body["model"]),
        ("answers", f"{ensemble.target}: {interval or ' or '.join(map(str, ensemble.classes))}"),
        ("reads", ", ".join(f"{feature['name']} ({feature['type']})" for feature in features)),
        ("certificate", verified.certificate.line),
        *(("", part) for part in verified.certificate.parts),
        *(
            ("worth", f"{short_worth(statement)}; {statement['part']} rows of {statement['dataset']}")
            for statement in statements
        ),
        *([("folder", opened.folder)] if opened.folder else []),
    ]
    details = {"features": features, "certificate": claim, "worth": statements, "folder": opened.folder}
    show(json, body | details, align_columns(lines))


def export(
    name: Model,
    out: Annotated[Path, typer.Option(help="A new folder.")],
    witnessed: Annotated[
        bool, typer.Option("--witnessed", help="With a proof against the newest checkpoint that witnesses cosigned.")
    ] = False,
    portable: Annotated[
        bool, typer.Option("--portable", help="With portable.onnx, in plain ONNX operators, for other runtimes.")
    ] = False,
    json: Json = False,
) -> None:
    """Copy a verified model and its certificate into a new folder that can travel.

    \b
    dpserve model export adult --out adult-model
    dpserve model export adult --out adult-model --portable
    """
    bundles = backend().bundles
    opened = bundles.open(name)
    opened.verified.runtime  # noqa: B018 - ModelInvalid: no model travels that does not open
    bundle = bundles.with_witnessed_proof(opened) if witnessed else opened.verified.travelling
    more = portable_form.portable_files(opened.verified.ensemble, bundle.onnx) if portable else {}
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    statements, signed = [], bundles.signed_statements(opened)
    card = card_with(bundle.card, [envelope for _, envelope, _ in signed])
    write_bundle(out.absolute(), replace(bundle, card=card))
    for job, envelope, proof in signed:
        for suffix, content in ((".dsse.json", envelope), (".tlog-proof", proof)):
            statements.append(f"worth-{job}{suffix}")
            write_new(out.absolute() / statements[-1], content, PUBLIC)
    for name, content in more.items():
        write_new(out.absolute() / name, content, PUBLIC)
    body = {"model": opened.reference, "out": str(out), "files": [*FILES, *statements, *more]}
    show(json, body, f"{body['model']} written to {out}")
