"""`dpserve model show`: a verified model, and what its certificate says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from models.features.features import number_text
from models.worth.attacks import attack_words
from models.worth.words import short_worth
from serving.cli.backend import backend
from serving.cli.certificates import show_page, show_record
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
    attack = bundles.attack(opened)
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
        *([("attack", attack_words(attack))] if attack else []),
        *([("folder", opened.folder)] if opened.folder else []),
    ]
    details = {"features": features, "certificate": claim, "worth": statements, "folder": opened.folder}
    details |= {"attack": attack} if attack else {}
    show(json, body | details, align_columns(lines))
