"""Commands on released models: list, show, export, predict, evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from accountant.certificates.certificate import verify
from accountant.errors import CertificateRevoked, InputError
from accountant.files import PUBLIC, write_new
from accountant.home import Home
from accountant.ledger.left import left_words
from accountant.log import collect
from accountant.log.stored_proofs import inclusion
from models.features import number_text
from models.store.bundle import FILES, Bundle, ModelStore, write_bundle
from models.store.loading import VerifiedModel, load_of_home
from models.store.placing import answering
from models.store.standing import way_out
from models.worth import report
from models.worth.metrics import named
from models.worth.stated import report_of
from models.worth.statements import ENVELOPE, judged, short_figure, short_worth, statement_of, worths
from serving.cli.certificates import certificate_json, certificate_line, show_page, show_record
from serving.cli.complete import DATASETS, MODELS
from serving.cli.terminal import Json, aligned, allowed, busy, note, rounds, show, this_user
from serving.process.registry import Registry
from training import job
from training.evaluation import evaluate as evaluations
from training.evaluation.evaluate import AskedWorth
from training.rows.row_files import read_columns, write_predictions

Answer = tuple[NDArray[Any], NDArray[Any]]  # labels (n,) and probabilities (n, classes)
Model = Annotated[str, typer.Argument(help="adult, adult@champion or adult@2.", autocompletion=MODELS)]


def open_model(name: str) -> tuple[Path, VerifiedModel]:
    """A model of the home, verified; its folder and itself. Raises UnknownName, or VerificationError; never warns."""
    home = Home.open()
    folder = ModelStore(home.models).resolve(name)
    try:
        return folder, load_of_home(home, folder, folder.parent.name)
    except CertificateRevoked as error:
        model = folder.parent.name
        _, offer = answering(home, model)
        out = way_out(model, offer)
        raise CertificateRevoked(f"{error.message}; {out['command'] or 'no other version verifies'}", **out) from None


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
    versions, home = registry.to_json(), Home.open()
    for line in versions:
        found = judged(worths(home, line["certificate"]["entry"])) if line["certificate"] else None
        line["worth"] = [] if found is None else [found]
    rows = [("MODEL", "STATE", "EPSILON", "DELTA", "RELATION", "WORTH"), *map(_row, versions)]
    show(json, {"models": versions}, aligned(rows))


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    certificate = line["certificate"]
    if certificate is None:
        problem = f": {line['problem']}" if line["problem"] and line["state"] != "revoked" else ""
        return (line["model"], f"{line['state']}{problem}", "", "", "", "")
    worth = [short_worth(each) for each in line["worth"]] or ["not evaluated"]
    return (line["model"], line["state"], certificate["epsilon"], certificate["delta"], certificate["relation"], *worth)


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
    claim, found = certificate_json(verified.certificate), worths(Home.open(), verified.certificate.issued)
    ends = ensemble.target_range
    interval = f"a number from {number_text(ends[0])} to {number_text(ends[1])}" if ends else ""
    lines = [
        ("model", body["model"]),
        ("answers", f"{ensemble.target}: {interval or ' or '.join(map(str, ensemble.classes))}"),
        ("reads", ", ".join(f"{feature['name']} ({feature['type']})" for feature in features)),
        ("certificate", certificate_line(verified.certificate)),
        *(("worth", f"{short_worth(each)}; {each['part']} rows of {each['dataset']}") for each in found),
        ("folder", folder),
    ]
    more = {"features": features, "certificate": claim, "worth": found, "folder": str(folder)}
    show(json, body | more, aligned(lines))


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
    home, stated = Home.open(), []
    for each in worths(home, verified.certificate.issued):
        envelope, proof, _ = statement_of(home, each["job"])
        for suffix, content in ((".dsse.json", envelope), (".tlog-proof", proof)):
            stated.append(f"worth-{each['job']}{suffix}")
            write_new(out.absolute() / stated[-1], content, PUBLIC)
    body = {"model": reference(folder), "out": str(out), "files": [*FILES, *stated]}
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
    allowed(Home.open(), "predict", model=folder.parent.name, dataset=verified.certificate.form.dataset.name)
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


Part = Annotated[str | None, typer.Option(help="holdout, what was kept aside, or training, which is marked as such.")]
Group = Annotated[
    str | None, typer.Option(help="By the groups of this column, which the schema names: figures and gaps.")
]


def evaluate(
    name: Model,
    against: Annotated[
        str | None,
        typer.Option(
            help="Another model, adult@1 for instance: which of the two is better, measured on the same rows.",
            autocompletion=MODELS,
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Private rows: of this dataset, at the price of --epsilon.", autocompletion=DATASETS),
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="Epsilon of this evaluation, a decimal.")] = None,
    part: Part = None,
    group: Group = None,
    data: Annotated[
        Path | None, typer.Option(help="Rows that are nobody's secret, with the target: .parquet or .csv. Free.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a report: .html with pictures, .json or .csv.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost; spend nothing.")] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key gives the same job, and spends once.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what a model is worth: on private rows, at a price, or on rows of yours.

    One noisy histogram is released, and every figure and interval follows from it. The statement is signed, stands in
    the ledger, and is given again for nothing where the same is asked again.

    \b
    dpserve evaluate adult --dataset adult --epsilon 0.25
    dpserve evaluate adult --dataset adult --epsilon 0.25 --part training
    dpserve evaluate adult@2 --against adult@1 --dataset adult --epsilon 0.25
    dpserve evaluate adult --dataset adult --epsilon 0.25 --group sex
    dpserve evaluate adult --data public.parquet --out report.html
    """
    if data is not None and (dataset, epsilon, part, against, group, idempotency_key, plan) == (*[None] * 6, False):
        return _evaluate_rows(name, data, out, json)
    if dataset is None or epsilon is None or data is not None:
        raise InputError("evaluate: name private rows by --dataset and a price by --epsilon, or a file of --data alone")
    home, asked = Home.open(), AskedWorth(name, dataset, epsilon, part, against=against, group=group)
    allowed(home, "train", "evaluate", dataset=dataset)
    if plan:
        body = evaluations.plan(home, asked, this_user()).to_json()
        price = f"epsilon {body['epsilon']}, delta {body['delta']}, on {body['part']} rows"
        known = "" if body["known"] is None else f"; job {body['known']} has measured this: its statement is given"
        left = left_words(body["left"], "evaluation")
        return show(json, body, aligned([("price", f"{price}{known}"), ("left after it", left)]))
    job.recover(home)
    with busy(f"evaluating {name} on {dataset}"):
        body = job.evaluate(home, asked, by=this_user(), key=idempotency_key)
    if out is not None:
        unit = statement_of(home, body["job"])[2].form.claim.unit
        report.write(report_of(body["worth"], unit.contributions), out)
    folder: Path = home.evaluations / str(body["job"]) / ENVELOPE
    show(json, body | {"statement": str(folder)}, worth_text(body["worth"]))
    note(f"statement {folder}; left {left_words(body['left'], 'evaluation')}")


def _evaluate_rows(name: str, data: Path, out: Path | None, json: bool) -> None:
    from training.evaluation.public_rows import evaluate_rows  # loads scikit-learn

    folder, verified = open_model(name)
    with busy(f"evaluating {reference(folder)} on {data.name}"):
        found = evaluate_rows(Home.open(), verified, reference(folder), data, this_user())
    if out is not None:
        report.write(found, out)
    rows = [("FIGURE", "VALUE"), *((each["metric"], short_figure(each["value"])) for each in found.metrics)]
    show(json, {**found.body, "out": None if out is None else str(out)}, "\n".join([*found.facts, "", aligned(rows)]))


def worth_text(body: dict[str, Any]) -> str:
    """A statement of worth for people: where and how it was measured, then every figure with its interval."""
    seen = "; the model learnt from these rows: it looks better than it is" if body["seen"] else ""
    other = body.get("against")
    than = "a constant answer" if other is None else f"{other['model']} of entry {other['certificate']}"
    better = f"better than {than}" if body["better"] else f"NOT SHOWN TO BE BETTER than {than}"
    head = [
        ("model", f"{body['model']}, certified by entry {body['certificate']}"),
        ("measured on", f"{body['part']} rows of {body['dataset']}{seen}"),
        ("spent", f"epsilon {body['epsilon']}, delta {body['delta']}; entry {body['entry']}"),
        ("verdict", better),
    ]
    lines = [
        (
            named(each),
            "not told by the counts" if each["value"] is None else short_figure(each["value"]),
            f"{short_figure(each['low'])} to {short_figure(each['high'])}",
        )
        for each in body["metrics"]
    ]
    percent = f"{float(body['level']) * 100:g} %"
    rows = [("FIGURE", "VALUE", f"{percent} INTERVAL"), *lines]
    return f"{aligned(head)}\n\n{aligned(rows)}"
