"""Commands on released models: list, show, export, predict, verify."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.budget import exact_decimal
from accountant.canonical import decimal_string
from accountant.errors import InputError, ModelInvalid, VerificationError
from accountant.home import Home, settings
from accountant.keys.private_keys import PublicKeys
from serving.cli.complete import MODELS
from serving.cli.terminal import Json, aligned, busy, paint, rounds, show

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from accountant.certificates.certificate import Certificate, Policy
    from accountant.certificates.plain_words import Page
    from models.forms.ensemble import Ensemble
    from models.store.bundle import Bundle
    from models.store.loading import VerifiedModel

Answer = tuple["NDArray[Any]", "NDArray[Any]"]  # labels (n,) and probabilities (n, classes)


BESIDE = {"": 64 << 20, ".dsse.json": 4 << 20, ".tlog-proof": 1 << 20}  # of a single .onnx: suffix -> most bytes
Model = Annotated[str, typer.Argument(help="adult, adult@champion or adult@2.", autocompletion=MODELS)]


def open_model(reference: str) -> tuple[Path, VerifiedModel]:
    """A model of the home, verified; its folder and itself."""
    from models.store.bundle import ModelStore
    from models.store.loading import load_of_home

    home = Home.open()
    folder = ModelStore(home.models).resolve(reference)
    return folder, load_of_home(home, folder, folder.parent.name)


def list_models(json: Json = False) -> None:
    """List the models of this home, each verified.

    \b
    dpserve model list
    """
    from serving.registry import Registry

    registry = Registry()
    with busy("verifying the models"):
        registry.refresh(Home.open())
    found = registry.to_json()
    rows = [("MODEL", "STATE", "EPSILON", "DELTA", "RELATION"), *map(_row, found)]
    show(json, {"models": found}, aligned(rows))


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
    folder, found = open_model(name)
    if certificate:
        return _show_page(found.certificate, out, json)
    if registry:
        return _show_record(found.certificate, out, json)
    ensemble = found.ensemble
    features = [feature.to_json() for feature in ensemble.features]
    body: dict[str, Any] = {"model": reference(folder), "target": ensemble.target, "classes": list(ensemble.classes)}
    body["target_range"] = ensemble.target_range
    claim = certificate_json(found.certificate)
    lines = [
        ("model", body["model"]),
        ("answers", f"{ensemble.target}: {_either(ensemble)}"),
        ("reads", ", ".join(f"{feature['name']} ({feature['type']})" for feature in features)),
        ("certificate", certificate_line(found.certificate)),
        ("folder", folder),
    ]
    show(json, {**body, "features": features, "certificate": claim, "folder": str(folder)}, aligned(lines))


def _either(ensemble: Ensemble) -> str:
    from models.features import number_text

    found = ensemble.target_range
    if found is None:
        return " or ".join(map(str, ensemble.classes))
    return f"a number from {number_text(found[0])} to {number_text(found[1])}"


def _show_page(certificate: Certificate, out: Path | None, json: bool, **more: Any) -> None:
    from accountant.certificates.plain_words import plain, to_html, to_markdown, to_text

    page = plain(certificate)
    writers = {".txt": to_text, ".md": to_markdown, ".html": to_html}
    if out is not None and out.suffix not in writers:
        raise InputError(f"out={out.name}: must end in one of {', '.join(writers)}")
    text = to_text(page) if out is None else writers[out.suffix](page)
    show(
        json, {**certificate_json(certificate), "page": _page_json(page), "out": _written(out, text)}, _said(out, text)
    )


def _page_json(page: Page) -> list[dict[str, Any]]:
    return [{"title": each.title, "paragraphs": each.paragraphs, "items": each.items} for each in page.sections]


def _show_record(certificate: Certificate, out: Path | None, json: bool) -> None:
    from accountant.certificates.deployments import record, to_yaml

    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise InputError(f"out={out.name}: must end in .yaml")
    text = to_yaml(certificate)
    body = {**certificate_json(certificate), "record": record(certificate), "out": _written(out, text)}
    show(json, body, _said(out, text))


def _written(out: Path | None, text: str) -> str | None:
    if out is None:
        return None
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"out={out}: cannot be written ({error.strerror})") from None
    return str(out)


def _said(out: Path | None, text: str) -> str:
    return text.rstrip("\n") if out is None else f"written to {out}"


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
    from models.store.bundle import FILES, write_bundle

    folder, found = open_model(name)
    bundle = _witnessed(found) if witnessed else found.travelling
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_bundle(out.absolute(), bundle)
    body = {"model": reference(folder), "out": str(out), "files": list(FILES)}
    show(json, body, f"{body['model']} written to {out}")


def _witnessed(found: VerifiedModel) -> Bundle:
    """The bundle with a newer proof of its entry, verified as well."""
    from dataclasses import replace

    from accountant.certificates.certificate import verify
    from accountant.log.collect import kept
    from accountant.log.stored_proofs import inclusion

    home = Home.open()
    note = kept(home.path)
    if note is None:
        raise InputError("witnessed: no checkpoint was cosigned yet; run dpserve ledger witness")
    with home.ledger.log.database.reading() as connection:
        proof = inclusion(connection, found.certificate.issued, note)
    verify(found.bundle.envelope, proof, found.bundle.onnx, home.trust)
    return replace(found.travelling, proof=proof.encode())


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
    from training.rows.row_files import read_columns, write_predictions

    folder, found = open_model(name)
    features, classes = found.ensemble.features, found.ensemble.classes
    with rounds(f"predicting with {reference(folder)}") as progress:
        answers = (found.runtime.predict(columns) for columns in read_columns(data, features))
        count = write_predictions(out, classes, _counted(answers, progress))
    body = {"model": reference(folder), "records": count, "out": str(out)}
    show(json, body, f"{count} records predicted with {body['model']}, written to {out}")


def _counted(answers: Iterator[Answer], progress: Callable[[int, int | None], None]) -> Iterator[Answer]:
    """The same answers; `progress` is told how many records went by."""
    done = 0
    for labels, probabilities in answers:
        yield labels, probabilities
        progress(done := done + len(labels), None)


def verify(
    path: Annotated[Path, typer.Argument(help="A model's folder, or its .onnx with certificate and proof beside it.")],
    trust: Annotated[Path | None, typer.Option(help="The pinned keys (trust.json); this home's when left out.")] = None,
    largest_epsilon: Annotated[
        str | None, typer.Option("--largest-epsilon", "--max-epsilon", help="The most that your policy admits.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="Your policy, JSON: largest_epsilon, largest_delta, relations, witnesses, oldest_days, ..."),
    ] = None,
    certificate: Annotated[bool, typer.Option("--certificate", help="Say what it promises, in plain words.")] = False,
    json: Json = False,
) -> None:
    """Verify a model, its certificate and its place in the ledger. Offline; anything wrong is exit code 4.

    \b
    dpserve verify adult-model --trust trust.json
    dpserve verify adult-model --trust trust.json --policy policy.json --certificate
    """
    local = _policy(policy, largest_epsilon)
    try:
        found = _verify(path, _trusted(trust), local)
    except VerificationError as error:
        blank = {"model": None, "epsilon": None, "delta": None, "relation": None}
        show(
            json,
            {"ok": False, **blank, "problems": [error.message]},
            f"{paint('NOT VERIFIED', 'bad')}: {error.message}",
        )
        raise typer.Exit(error.exit_code) from None
    if certificate:
        return _show_page(found, None, json, ok=True, problems=[])
    body = {"ok": True, **certificate_json(found), "problems": []}
    show(json, body, f"{paint('verified', 'good')}: {found.model}: {certificate_line(found)}")


def _policy(path: Path | None, largest_epsilon: str | None) -> Policy:
    """The file's policy; a figure on the command line can only make it stricter."""
    from dataclasses import replace

    from accountant.certificates.policy import Policy, read_policy

    found = Policy() if path is None else read_policy(path)
    if largest_epsilon is None:
        return found
    most = exact_decimal("largest_epsilon", largest_epsilon)
    return replace(found, largest_epsilon=min(most, most if found.largest_epsilon is None else found.largest_epsilon))


def _verify(path: Path, trust: PublicKeys, policy: Policy) -> Certificate:
    from accountant.certificates import certificate
    from models.onnx.runtime import OnnxModel
    from models.store.loading import load_verified

    if path.is_dir():
        return load_verified(path, trust, policy).certificate
    onnx, envelope, proof = (_read(Path(f"{path}{suffix}"), most) for suffix, most in BESIDE.items())
    found = certificate.verify(envelope, proof.decode("utf-8", "replace"), onnx, trust, policy)
    OnnxModel(onnx)  # the graph holds allowed operators alone, and opens
    return found


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise ModelInvalid(f"{path.name}: more than {most} bytes")
    return content


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


def reference(folder: Path) -> str:
    return f"{folder.parent.name}@{folder.name}"
