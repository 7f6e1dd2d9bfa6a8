"""Commands on released models: list, show, export, predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from accountant.certificates.certificate import verify
from accountant.errors import InputError
from accountant.home import Home
from accountant.log import collect
from accountant.log.stored_proofs import inclusion
from models.features import number_text
from models.store.bundle import FILES, Bundle, ModelStore, write_bundle
from models.store.loading import VerifiedModel, load_of_home
from serving.cli.certificates import certificate_json, certificate_line, show_page, show_record
from serving.cli.complete import MODELS
from serving.cli.terminal import Json, aligned, busy, rounds, show
from serving.process.registry import Registry
from training.rows.row_files import read_columns, write_predictions

Answer = tuple[NDArray[Any], NDArray[Any]]  # labels (n,) and probabilities (n, classes)
Model = Annotated[str, typer.Argument(help="adult, adult@champion or adult@2.", autocompletion=MODELS)]


def open_model(name: str) -> tuple[Path, VerifiedModel]:
    """A model of the home, verified; its folder and itself. Raises UnknownName, or VerificationError; never warns."""
    home = Home.open()
    folder = ModelStore(home.models).resolve(name)
    return folder, load_of_home(home, folder, folder.parent.name)


def reference(folder: Path) -> str:
    """`adult@2`, from the folder of the version."""
    return f"{folder.parent.name}@{folder.name}"


def list_models(json: Json = False) -> None:
    """List the models of this home, each verified.

    \b
    dpserve model list
    """
    registry = Registry()
    with busy("verifying the models"):
        registry.refresh(Home.open())
    versions = registry.to_json()
    rows = [("MODEL", "STATE", "EPSILON", "DELTA", "RELATION"), *map(_row, versions)]
    show(json, {"models": versions}, aligned(rows))


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    name = f"{line['model']}{' (champion)' if line['champion'] else ''}"
    certificate = line["certificate"]
    if certificate is None:
        return (name, line["problem"] or line["state"], "", "", "")
    return (name, line["state"], certificate["epsilon"], certificate["delta"], certificate["relation"])


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
    folder, verified = open_model(name)
    if certificate:
        return show_page(verified.certificate, out, json)
    if registry:
        return show_record(verified.certificate, out, json)
    ensemble = verified.ensemble
    features = [feature.to_json() for feature in ensemble.features]
    body: dict[str, Any] = {"model": reference(folder), "target": ensemble.target, "classes": list(ensemble.classes)}
    body["target_range"] = ensemble.target_range
    claim = certificate_json(verified.certificate)
    ends = ensemble.target_range
    interval = f"a number from {number_text(ends[0])} to {number_text(ends[1])}" if ends else ""
    lines = [
        ("model", body["model"]),
        ("answers", f"{ensemble.target}: {interval or ' or '.join(map(str, ensemble.classes))}"),
        ("reads", ", ".join(f"{feature['name']} ({feature['type']})" for feature in features)),
        ("certificate", certificate_line(verified.certificate)),
        ("folder", folder),
    ]
    show(json, {**body, "features": features, "certificate": claim, "folder": str(folder)}, aligned(lines))


def export(
    name: Model,
    out: Annotated[Path, typer.Option(help="A new folder.")],
    witnessed: Annotated[
        bool, typer.Option("--witnessed", help="With a proof against the newest checkpoint that witnesses cosigned.")
    ] = False,
    json: Json = False,
) -> None:
    """Copy a verified model and its certificate into a new folder that can travel.

    \b
    dpserve model export adult --out adult-model
    """
    folder, verified = open_model(name)
    bundle = _witnessed(verified) if witnessed else verified.travelling
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_bundle(out.absolute(), bundle)
    body = {"model": reference(folder), "out": str(out), "files": list(FILES)}
    show(json, body, f"{body['model']} written to {out}")


def _witnessed(verified: VerifiedModel) -> Bundle:
    """The bundle with a newer proof of its entry, verified as well."""
    home = Home.open()
    note = collect.kept(home.path)
    if note is None:
        raise InputError("witnessed: no checkpoint was cosigned yet; run dpserve ledger witness")
    with home.ledger.log.database.reading() as connection:
        proof = inclusion(connection, verified.certificate.issued, note)
    verify(verified.bundle.envelope, proof, verified.bundle.onnx, home.trust)
    return replace(verified.travelling, proof=proof.encode())


def predict(
    name: Model,
    data: Annotated[
        Path, typer.Option(help="Records, .parquet or .csv; columns that are no features are passed over.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write label and p_<class>, or value; .parquet or .csv.")],
    json: Json = False,
) -> None:
    """Predict every row of a file, in its order, with a verified model.

    \b
    dpserve predict adult --data new.parquet --out predictions.parquet
    """
    folder, verified = open_model(name)
    features, classes = verified.ensemble.features, verified.ensemble.classes
    with rounds(f"predicting with {reference(folder)}") as progress:
        answers = (verified.runtime.predict(columns) for columns in read_columns(data, features))
        count = write_predictions(out, classes, _counted(answers, progress))
    target = verified.ensemble.target
    body = {"model": reference(folder), "target": target, "records": count, "out": str(out)}
    show(json, body, f"{target} of {count} records predicted with {body['model']}, written to {out}")


def _counted(answers: Iterator[Answer], progress: Callable[[int, int | None], None]) -> Iterator[Answer]:
    """The same answers; `progress` is told how many records went by."""
    done = 0
    for labels, probabilities in answers:
        yield labels, probabilities
        progress(done := done + len(labels), None)
