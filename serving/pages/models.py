"""The pages of models: which there are, and of each what it promises, how it decides, and all that verifies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import ASKING
from accountant.access.tokens import SCOPES
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.home.notes import note_of, notes
from accountant.ledger.archive import archived
from accountant.store.store import read_bodies
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.certificates.chances import best_guess, factor
from dpserve_verify.certificates.own_file import own_file
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.predicate import Predicate
from dpserve_verify.errors import CertificateRevoked, DpserveError, InputError, VerificationError
from models.edit.curves import editable
from models.features.features import CategoricalFeature, Feature, NumericFeature
from models.features.written import DELIMITERS, list_encodings
from models.parts.answers import before
from models.store import placing
from models.store.bundle import CHAMPION, ModelStore
from models.store.since import growth_since
from models.worth.attacks import attack_of, attack_words
from models.worth.stated import report_of
from models.worth.statements import cover_levels, is_cover, judgements, mark, pick_judgement, worths
from serving.http.compression import pack
from serving.http.rights import LISTED, NOTHING, READS, may_model, seen_models
from serving.http.routes import Door, access, in_snapshot, in_thread, page_door, state
from serving.operations.placing import NO_REASON
from serving.pages.parts import shapes as ui_shapes
from serving.pages.parts.ui import form_fields, page, see_other
from serving.process.registry import Registry, Served
from serving.process.state import ServingState
from serving.rest import files
from serving.rest.models import format_json
from serving.wire import lists
from serving.wire.errors import json_response
from serving.wire.request_bodies import known_query, query_int, query_text

PAGE = 50
FOLLOW_SECONDS = 3.0
DIGITS = 8  # of a digest, at least, that a search goes by
VALUES = 12  # of a category, named before the rest is counted
MANY = 8  # features; of more the page shows those that matter most, finds the others, and folds
ACTS = {"promote": placing.promote, "retire": placing.retire, "restore": placing.restore}
HTML, BINARY = "text/html", "application/octet-stream"
MEDIA = {
    ".onnx": BINARY,
    ".json": "application/json",
    ".tlog-proof": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}


BETTER = {"auroc": -1, "accuracy": -1, "rmse": 1}  # what models are judged by, in the list's order; 1: less is better


def _by_worth(line: dict[str, Any]) -> tuple[Any, ...]:
    """Return the sort key that puts comparable models together, the best first: two classes by AUROC, more by accuracy,
    numbers by RMSE, each target by itself, for RMSE is in the target's own unit. Models without a figure come last.
    """
    worth = line["worth"]
    if worth is None or worth["value"] is None or worth["metric"] not in BETTER:
        return (len(BETTER),)
    target = (line["target"], line["dataset"]) if worth["metric"] == "rmse" else ()
    return [*BETTER].index(worth["metric"]), *target, BETTER[worth["metric"]] * float(worth["value"])


ORDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda line: (),  # as they come
    "newest": lambda line: -(line["certificate"] or {"entry": -1})["entry"],
    "dataset": lambda line: line["dataset"] or "",
    "learner": lambda line: line["learner"] or "",
    "epsilon": lambda line: float((line["certificate"] or {"epsilon": "inf"})["epsilon"]),
    "worth": _by_worth,  # of lines that tell it
}


FIGURES = {"worth": "value", "low": "low", "high": "high", "metric": "metric"}
COLUMNS = ("model", "state", "dataset", "target", "learner", "epsilon", "delta", "released", *FIGURES)


async def models(request: Request) -> Response:
    """Return the page of the models whose name, dataset, target or learner holds `q`, or where `q` begins the sha256 of
    a version's file or statement (DIGITS at least), in one of ORDERS; as a file, all of them.
    """
    known_query(request, "q", "after", "sort", "archived", lists.FORM)
    serving = state(request)
    serving.require_ready()
    query, after = request.query_params.get("q", "").strip()[:71], query_int(request, "after", 0)
    versions = seen_models(access(request), serving.registry.to_json(), serving.registry)
    every, order = query_text(request, "archived") == "true", request.query_params.get("sort", "name")
    if order not in ORDERS:
        raise InputError(f"sort={order[:40]!r}: must be one of {list(ORDERS)}")
    form = lists.form_of(request)
    shown = slice(after, after + PAGE) if form is None else slice(None)
    listed = await in_snapshot(request, _listed, serving.home, versions, query, order, every, shown)
    if form is not None:
        return lists.as_file(form, "models", COLUMNS, map(_line, listed["models"]))
    context: dict[str, Any] = {
        **listed,
        "asked": query,
        "order": order,
        "after": after,
        "more": after + PAGE if listed["kept"] > after + PAGE else None,
        "before": max(0, after - PAGE) if after else None,
        "every": every,
        "notes": await in_thread(notes, serving.home.path, "model"),
    }
    return page(request, "models.html", **context)


def _listed(
    home: Home, versions: list[dict[str, Any]], query: str, order: str, every: bool, shown: slice
) -> dict[str, Any]:
    """Return the lines that are shown of the models that match, in order; how many match, how many there are, and how
    many are archived. `every`: with those.
    """
    hidden = archived(home.ledger, "model")
    lines = [line for line in _by_name(versions) if every or line["name"] not in hidden]
    digest = query.lower().removeprefix("sha256:")
    issued = [line for line in versions if line["certificate"]] if len(digest) >= DIGITS else []
    digests = [(line["name"], line["certificate"][kind]) for line in issued for kind in ("model", "statement")]
    holds = {name for name, file_digest in digests if file_digest.startswith(digest)}
    words = ("name", "dataset", "target", "learner")
    matches = [
        line
        for line in lines
        if line["name"] in holds or any(query.lower() in (line[word] or "").lower() for word in words)
    ]
    if order == "worth":
        matches = _with_worth(home, matches)
    matches.sort(key=ORDERS[order])
    about = {"total": len(lines), "kept": len(matches), "archived": len(hidden)}
    return {"models": _with_release(home, matches[shown]), **about}


def _line(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model as a line of a file, with COLUMNS."""
    claim, worth = model["certificate"] or {}, model["worth"] or {}
    figures = {name: worth.get(key) for name, key in FIGURES.items()}
    return {**model, "epsilon": claim.get("epsilon"), "delta": claim.get("delta"), **figures}


def _by_name(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a line for each model, that of its champion, with how many versions there are."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_name.setdefault(line["name"], []).append(line)
    return [_summary(name, versions) for name, versions in by_name.items()]


def _with_worth(home: Home, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each line the first figure of the statement that the version is judged by."""
    return [
        {**line, "worth": judgement and {**judgement["metrics"][0], "outcome": judgement["outcome"]}}
        for line, judgement in judgements(home, lines)
    ]


def _with_release(home: Home, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each line when the version was released, and what it is worth."""
    issued = {line["certificate"]["entry"] for line in lines if line["certificate"]}
    database = home.ledger.log.database
    with database.sharing(), database.reading() as connection:
        read_bodies(connection, issued)
        times = {seq: home.ledger.log.entry(seq).value["time"] for seq in issued}
    released = [line["certificate"] and times[line["certificate"]["entry"]] for line in lines]
    return [{**line, "released": time} for line, time in zip(_with_worth(home, lines), released, strict=True)]


def _summary(name: str, versions: list[dict[str, Any]]) -> dict[str, Any]:
    shown = next((line for line in versions if line[CHAMPION]), versions[-1])
    broken = sum(line["verified"] is False and line["state"] != "revoked" for line in versions)
    return {**shown, "name": name, "versions": len(versions), "broken": broken}


async def show(request: Request) -> Response:
    """Return the page of a model, or of one version. Where it is not served: the reason, with the error's status."""
    known_query(request, "placed")
    serving, reference = state(request), request.path_params["name"]
    home, name = serving.home, reference.partition("@")[0]
    if "placed" in request.query_params:
        await _follow_store(serving, name)
    context, versions, problem = await in_snapshot(request, _with_versions, home, serving.registry, reference)
    if problem is None and context["served"].version not in (line["version"] for line in versions):
        # a look that began before took it back
        context, versions, problem = await in_snapshot(request, _with_versions, home, serving.registry, reference)
    if problem is not None:
        if not versions:
            raise problem
        return _not_served(request, reference, versions, problem)
    rights = access(request)
    dataset = context["form"].dataset.name
    permissions: dict[str, Any] = {
        "placed": query_int(request, "placed", 0),
        "who": rights.has(*READS),
        "places_it": _may_promote(request),
        "note": note_of(home.path, "model", name),
        "measures": rights.may(*ASKING, dataset=dataset),
        "asks": may_model(rights, ("predict",), name, dataset),
        "edits_it": context["curves"] and may_model(rights, ("train", "promote"), name, dataset),
    }
    return page(request, "models_show.html", **context, **permissions, versions=versions)


def _not_served(request: Request, reference: str, versions: list[dict[str, Any]], error: DpserveError) -> Response:
    """Return the page of a version that does not verify, that was retired or revoked, or that does not exist."""
    about: dict[str, Any] = {
        "reference": reference,
        "versions": versions,
        "problem": str(error.details.get("reason") or error.message),
        "broken": isinstance(error, VerificationError) and not isinstance(error, CertificateRevoked),
        "nothing": "offer" in error.details,
        "placed": query_int(request, "placed", 0),
        "offer": error.details.get("offer"),
        "command": error.details.get("command"),
        "places_it": _may_promote(request),
    }
    return page(request, "models_broken.html", refusal=error, **about)


def _may_promote(request: Request) -> bool:
    """Return whether the caller may promote this model."""
    reference, rights = request.path_params["name"], access(request)
    dataset = None if rights.may("promote") else state(request).registry.any_dataset(reference.partition("@")[0])
    return may_model(rights, ("promote",), reference.partition("@")[0], dataset)


async def place(request: Request) -> Response:
    """Move the champion, or take a version out of serving and back: by who may promote, and written into the ledger."""
    typed = await form_fields(request, "version", "what", "why", "although")
    act: Callable[..., placing.Placed] | None = ACTS.get(typed["what"])
    name = request.path_params["name"]
    if act is None:
        raise InputError(f"what={typed['what'][:40]!r}: must be one of {sorted(ACTS)}")
    by, why = access(request).principal, typed["why"].strip() or NO_REASON
    if typed["although"] and act is placing.promote:
        act = partial(placing.promote, although_not_better=True)
    done = await in_thread(act, state(request).home, f"{name}@{typed['version']}", why, by)
    shown = name if act is placing.retire else f"{name}@{typed['version']}"
    return see_other(f"/ui/models/{shown}?placed={done.entry}")


async def _follow_store(serving: ServingState, name: str) -> None:
    """Wait, for FOLLOW_SECONDS at most, until this process has seen what the home's files say of the model's versions:
    it looks twice a second, and a page that is shown after a change must not show what was before.
    """
    with anyio.move_on_after(FOLLOW_SECONDS):
        while not await in_thread(_agrees, ModelStore(serving.home.models), name, serving.registry.to_json()):
            await anyio.sleep(0.1)


def _agrees(store: ModelStore, name: str, lines: list[dict[str, Any]]) -> bool:
    """Return whether the registry's lines of a model say of each version what its files say."""
    champion, retired = store.champion(name), store.retired(name)
    states = {line["version"]: line["state"] for line in lines if line["name"] == name and line["state"] != "revoked"}
    served = {version: state for version, state in states.items() if version not in retired}
    return all(states[version] == "retired" for version in states.keys() & {*retired}) and all(
        (state == "champion") == (version == champion) and state != "retired" for version, state in served.items()
    )


def _with_versions(
    home: Home, registry: Registry, reference: str
) -> tuple[dict[str, Any], list[dict[str, Any]], VerificationError | UnknownName | None]:
    """Return what a model's page shows, all versions of its name, and why it is not served: that is told beside what
    else there is of that name, listed after it, so that a version made just then is found.
    """
    context: dict[str, Any] = {}
    problem: VerificationError | UnknownName | None = None
    name = reference.partition("@")[0]
    try:
        context = _context(home, registry, reference) | {"archived": name in archived(home.ledger, "model")}
    except (VerificationError, UnknownName) as error:
        problem = error
    return context, mark(home, [line for line in registry.to_json() if line["name"] == name]), problem


def _context(home: Home, registry: Registry, reference: str) -> dict[str, Any]:
    served = registry.get(reference)
    verified = served.verified
    certificate, ensemble = verified.certificate, verified.ensemble
    form, page = certificate.form, plain(certificate, growth_since(home.ledger, certificate), own_file())
    has_many = len(ensemble.features) > MANY
    sizes = dict(ensemble.importances()) if has_many else {}  # a few features stand in their own order
    return {
        "served": served,
        "certificate": certificate,
        "form": form,
        "reserved": home.ledger.log.entry(certificate.reservation).value,
        "promise": dict(zip(("epsilon", "delta"), certificate.headline, strict=True)),
        "factor": factor(certificate.headline[0]),
        "guess": best_guess(*certificate.headline),
        "answers": sum(run.count for run in form.mechanisms),
        "first_page": list(page.first),
        "sections": [section for section in page.sections if section.title != "What was edited"],  # it stands elsewhere
        "adds_up": ensemble.adds_up,
        "before": before(ensemble.bends),
        "curves": editable(ensemble),
        "together": ensemble.together,
        "inputs": ui_shapes.inputs(sorted(ensemble.features, key=lambda one: -sizes.get(one.name, 0))),
        "many": has_many,
        "written": format_json(served),
        "encodings": list_encodings(),
        "delimiters": DELIMITERS,
        "kinds": [[feature.name, feature.kind] for feature in ensemble.features],
        "features": [
            {"name": feature.name, "kind": feature.kind, "values": _values(feature)} for feature in ensemble.features
        ],
        "range": ensemble.target_range,
        "classes": [str(label) for label in ensemble.classes],
        "target": ensemble.target,
        **_worth_of(home, certificate.issued, form, ensemble.classes),
        "attack": None if (body := attack_of(home, certificate.reservation)) is None else attack_words(body),
        "files": [{"name": name, "size": len(raw), "says": SAYS[name]} for name, raw in files.content(served).items()],
    }


def _worth_of(home: Home, issued: int, form: Predicate, classes: Sequence[Any]) -> dict[str, Any]:
    """Return all that was measured of a model, the statement that it is judged by, the report with the pictures of
    that one, where its rows are of the people whom the certificate of the model speaks of, and `covers`: the levels
    at which answers that cover are given, by the column in whose groups they were counted, "" for all records alike.
    """
    statements = worths(home, issued)
    judged = pick_judgement(statements)
    statements.sort(key=lambda each: each is not judged)  # first, as how good it is comes before how its answers cover
    head, report = next(iter(statements), None), None
    if judged is not None and judged["dataset"] == form.dataset.name:
        report = report_of(judged, form.claim.unit.contributions, classes)
    covers: dict[str, list[int]] = {}
    for each in filter(is_cover, statements):  # of each column the newest, which answers
        covers.setdefault(each["histogram"].get("groups", {}).get("column", ""), cover_levels(each))
    return {
        "worths": statements, "head": head, "judged": judged, "report": report,
        "covers": sorted(covers.items()),
    }  # fmt: skip


def _values(feature: Feature) -> str:
    if isinstance(feature, CategoricalFeature):
        hidden = len(feature.values) - VALUES
        return ", ".join(feature.values[:VALUES]) + (f" and {hidden} more" if hidden > 0 else "")
    if not isinstance(feature, NumericFeature):
        return "true or false"
    if not feature.edges:
        return f"any {feature.noun}"
    low, high = feature.text(feature.edges[0]), feature.text(feature.edges[-1])
    return f"{low} to {high}, told apart at {len(feature.edges)} cut points"


SAYS = {
    "model.onnx": "The model: raw records in, answers out",
    "model.onnx.dsse.json": "The certificate, signed",
    "model.onnx.sigstore.json": "The same certificate as a Sigstore bundle",
    "model.onnx.tlog-proof": "Proof that it stands in the ledger",
    "ensemble.json": "The released numbers",
    "card.md": "The model card",
}


async def download(request: Request) -> Response:
    """Return one file of the bundle, the exact bytes that were verified."""
    served, wanted = await _requested_model(request), request.path_params["file"]
    content = (await in_thread(files.content, served)).get(wanted)
    if content is None:
        raise UnknownName(f"file={wanted[:80]!r}: there are {list(FILES)}")
    media = next(kind for end, kind in MEDIA.items() if wanted.endswith(end))
    return Response(
        content, media_type=media, headers=lists.attachment_header(f"{served.name}-{served.version}-{wanted}")
    )


async def bundle(request: Request) -> Response:
    """Return the whole folder as a zip file: unpacked, it is what `dpserve verify` takes."""
    served = await _requested_model(request)
    raw = await in_thread(files.zip_files, served)
    return Response(
        raw, media_type="application/zip", headers=lists.attachment_header(f"{served.name}-{served.version}.zip")
    )


async def shapes(request: Request) -> Response:
    """Return the data of the page's pictures, as JSON."""
    known_query(request, "after", "own")
    after, own = query_int(request, "after", 0), query_int(request, "own", 0) > 0
    served = await _requested_model(request)
    picture = await in_thread(ui_shapes.picture, served.verified.ensemble, after, own)
    answer = json_response({"model": served.reference, **picture})
    raw, encoding = pack(bytes(answer.body), request.headers.get("accept-encoding", ""))
    return Response(raw, media_type=answer.media_type, headers={"Vary": "Accept-Encoding", **encoding})


async def trust(request: Request) -> Response:
    """Return the public keys of this server's own ledger, as `trust.json`."""
    known_query(request)
    return Response(
        state(request).home.trust.to_json(),
        media_type="application/json",
        headers=lists.attachment_header("trust.json"),
    )


async def verify(request: Request) -> Response:
    """Verify files from anywhere, in the browser."""
    known_query(request)
    return page(request, "models_verify.html")


async def _requested_model(request: Request) -> Served:
    serving = state(request)
    serving.require_ready()
    return await in_thread(serving.registry.get, request.path_params["name"])


def _page(path: str, answer: Any, says: str, media: str = HTML, on: str = "") -> Door:
    return Door("GET", path, SCOPES, answer, says, media=media, hidden=True, on=on)


DOORS = (
    _page("/ui/models", models, "Models", on=LISTED),
    _page("/ui/models/{name}", show, "A model"),
    page_door("POST", "/ui/models/{name}/place", ("promote",), place, "Move a champion", 303),
    _page("/ui/models/{name}/shapes", shapes, "What a model's pictures show", "application/json"),
    _page("/ui/models/{name}/files/{file}", download, "A file of a model", BINARY),
    _page("/ui/models/{name}/bundle.zip", bundle, "All files of a model", "application/zip"),
    _page("/ui/trust.json", trust, "The public keys", "application/json", NOTHING),
    _page("/ui/verify", verify, "Verify files in the browser", on=NOTHING),
)
