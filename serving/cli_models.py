"""Commands on released models: list, show, explain, export, predict, verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.budget import exact_decimal
from accountant.canonical import decimal_string
from accountant.errors import InputError, VerificationError
from accountant.home import Home, settings
from accountant.keys import PublicKeys
from serving.terminal import Json, aligned, show

if TYPE_CHECKING:
    from accountant.certificate import Certificate, Policy
    from models.verified import VerifiedModel

model = typer.Typer(help="Released models and their certificates.", no_args_is_help=True)

Model = Annotated[str, typer.Argument(help="adult, adult@champion or adult@2.")]


def open_model(reference: str) -> tuple[Path, VerifiedModel]:
    """A model of the home, verified; its folder and itself."""
    from models.bundle import ModelStore
    from models.verified import load_verified

    home = Home.open()
    folder = ModelStore(home.models).resolve(reference)
    return folder, load_verified(folder, home.trust)


@model.command("list")
def list_models(json: Json = False) -> None:
    """List the models of this home, each verified.

    \b
    dpserve model list
    """
    from serving.registry import Registry

    registry = Registry()
    registry.refresh(Home.open())
    found = registry.to_json()
    rows = [("MODEL", "STATE", "EPSILON", "DELTA", "RELATION"), *map(_row, found)]
    show(json, {"models": found}, aligned(rows))


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    name = f"{line['model']}{' (champion)' if line['champion'] else ''}"
    certificate = line["certificate"]
    if certificate is None:
        return (name, str(line["problem"]), "", "", "")
    return (name, line["state"], certificate["epsilon"], certificate["delta"], certificate["relation"])


@model.command("show")
def show_model(name: Model, json: Json = False) -> None:
    """Show a model: what it reads, what it answers, what its certificate says.

    \b
    dpserve model show adult
    """
    folder, found = open_model(name)
    ensemble = found.ensemble
    features = [feature.to_json() for feature in ensemble.features]
    body = {"model": _reference(folder), "target": ensemble.target, "classes": list(ensemble.classes)}
    claim = certificate_json(found.certificate)
    lines = [
        ("model", body["model"]),
        ("answers", f"{ensemble.target}: {' or '.join(map(str, ensemble.classes))}"),
        ("reads", ", ".join(f"{feature['name']} ({feature['type']})" for feature in features)),
        ("certificate", certificate_line(found.certificate)),
        ("folder", folder),
    ]
    show(json, {**body, "features": features, "certificate": claim, "folder": str(folder)}, aligned(lines))


@model.command("explain")
def explain(
    name: Model,
    out: Annotated[Path | None, typer.Option(help="A picture as well: FILE.png or FILE.html.")] = None,
    json: Json = False,
) -> None:
    """Explain a model: its votes as a table, and as a picture with --out.

    \b
    dpserve model explain adult --out adult.html
    """
    from models.explain import shapes, vote_table

    folder, found = open_model(name)
    if out is not None:
        from models.picture import picture

        picture(found.ensemble, certificate_line(found.certificate), out)
    votes = [{"votes": row.votes, "feature": row.feature, "test": row.test} for row in vote_table(found.ensemble)]
    features = [{"feature": shape.feature, "importance": shape.importance} for shape in shapes(found.ensemble)]
    body = {"model": _reference(folder), "votes": votes, "features": features, "picture": str(out) if out else None}
    last = found.ensemble.classes[-1]
    rows: list[tuple[Any, ...]] = [
        ("VOTES", f"FOR {last} WHERE"),
        *((f"{row['votes']:+d}", row["test"]) for row in votes),
    ]
    show(json, body, aligned(rows))


@model.command("export")
def export(name: Model, out: Annotated[Path, typer.Option(help="A new folder.")], json: Json = False) -> None:
    """Copy a verified model and its certificate into a new folder that can travel.

    \b
    dpserve model export adult --out adult-model
    """
    from models.bundle import FILES, write_bundle

    folder, found = open_model(name)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_bundle(out.absolute(), found.bundle)
    body = {"model": _reference(folder), "out": str(out), "files": list(FILES)}
    show(json, body, f"{body['model']} written to {out}")


def predict(
    name: Model,
    data: Annotated[
        Path, typer.Option(help="Records, .parquet or .csv; columns that are no features are passed over.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write label and p_<class>, .parquet or .csv; row order kept.")],
    json: Json = False,
) -> None:
    """Predict every row of a file with a verified model.

    \b
    dpserve predict adult --data new.parquet --out predictions.parquet
    """
    from training import job

    folder, found = open_model(name)
    features, classes = found.ensemble.features, found.ensemble.classes
    answers = (found.runtime.predict(columns) for columns in job.read_columns(data, features))
    count = job.write_predictions(out, classes, answers)
    body = {"model": _reference(folder), "records": count, "out": str(out)}
    show(json, body, f"{count} records predicted with {body['model']}, written to {out}")


def verify(
    path: Annotated[Path, typer.Argument(help="A model's folder, or its .onnx with certificate and proof beside it.")],
    trust: Annotated[Path | None, typer.Option(help="The pinned keys (trust.json); this home's when left out.")] = None,
    max_epsilon: Annotated[str | None, typer.Option(help="The most that your policy admits.")] = None,
    json: Json = False,
) -> None:
    """Verify a model, its certificate and its place in the ledger. Offline; anything wrong is exit code 4.

    \b
    dpserve verify adult-model --trust trust.json
    """
    from accountant.certificate import Policy

    policy = Policy(None if max_epsilon is None else exact_decimal("max_epsilon", max_epsilon))
    try:
        found = _verify(path, _trusted(trust), policy)
    except VerificationError as error:
        blank = {"model": None, "epsilon": None, "delta": None, "relation": None}
        show(json, {"ok": False, **blank, "problems": [error.message]}, f"NOT VERIFIED: {error.message}")
        raise typer.Exit(error.exit_code) from None
    body = {"ok": True, **certificate_json(found), "problems": []}
    show(json, body, f"verified: {found.model}: {certificate_line(found)}")


def _verify(path: Path, trust: PublicKeys, policy: Policy) -> Certificate:
    from accountant import certificate
    from models.runtime import OnnxModel
    from models.verified import load_verified

    if path.is_dir():
        return load_verified(path, trust, policy).certificate
    onnx, envelope, proof = (_read(Path(f"{path}{suffix}")) for suffix in ("", ".dsse.json", ".tlog-proof"))
    found = certificate.verify(envelope, proof.decode("utf-8", "replace"), onnx, trust, policy)
    OnnxModel(onnx)  # the graph holds allowed operators alone, and opens
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _trusted(trust: Path | None) -> PublicKeys:
    path = trust or Path(settings()["DPSERVE_HOME"].value) / "trust.json"
    try:
        return PublicKeys.from_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"trust={path}: cannot be read ({error.strerror}); name the pinned keys with --trust"
        ) from None


def certificate_json(found: Certificate) -> dict[str, Any]:
    return {
        "model": found.model,
        "epsilon": decimal_string(found.epsilon),
        "delta": decimal_string(found.delta),
        "relation": found.relation,
        "reservation": found.reservation,
        "issued": found.issued,
    }


def certificate_line(found: Certificate) -> str:
    """The claim in one line."""
    unit = found.claim["unit"]["name"]
    return f"({found.epsilon}, {decimal_string(found.delta)})-differential privacy, {found.relation}, unit: {unit}"


def _reference(folder: Path) -> str:
    return f"{folder.parent.name}@{folder.name}"
