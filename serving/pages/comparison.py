"""The page that puts two models side by side: price, promise, worth, and the curves by which they differ most."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import SCOPES
from accountant.home import Home
from dpserve_verify.errors import InputError
from models.explain.compare import compare, panels
from models.explain.html import figure
from models.explain.vega_panels import PAGE
from models.worth.statements import pick_judgement, worths
from serving.http.rights import require_model, seen_models
from serving.http.routes import access, in_snapshot, in_thread, page_door, state
from serving.pages.parts.commands import command
from serving.pages.parts.ui import page
from serving.process.registry import Served
from serving.wire.request_bodies import known_query, query_text

DRAWN = 6  # features, those that differ most
METRICS = 4


async def comparison(request: Request) -> Response:
    """Return the page of two models; of one alone, the form that chooses another."""
    known_query(request, "with")
    serving, rights = state(request), access(request)
    serving.require_ready()
    reference, other = request.path_params["name"], query_text(request, "with") or ""
    lines = seen_models(rights, serving.registry.to_json(), serving.registry)
    compared = [first := await in_thread(serving.registry.get, reference)]
    pictures: list[Markup] = []
    says = ""
    if other:
        await in_thread(require_model, rights, serving.registry.dataset_of, SCOPES, other)
        compared.append(second := await in_thread(serving.registry.get, other))
        pictures, says = await in_thread(_curves, first, second)
    sides = await in_snapshot(request, lambda: [_side(serving.home, served) for served in compared])
    paid = _paid(sides) if other else []
    mine = first.verified.certificate.form.dataset.name
    others = [line["model"] for line in lines if line["model"] != first.reference and line["verified"]]
    others.sort(key=lambda name: next(line["dataset"] != mine for line in lines if line["model"] == name))
    return page(
        request, "models_compare.html", sides=sides, others=others, other=other, pictures=pictures, says=says,
        paid=paid,
        command=command("model explain", first.reference, {"compare": other, "out": "both.html"}),
    )  # fmt: skip


def _side(home: Home, served: Served) -> dict[str, Any]:
    """Return what stands in a model's column."""
    certificate = served.verified.certificate
    statements = worths(home, certificate.issued)
    judged = pick_judgement(statements)
    return {
        "reference": served.reference, "dataset": certificate.form.dataset.name,
        "target": served.verified.ensemble.target, "learner": certificate.form.public.learner,
        "epsilon": certificate.headline[0], "delta": certificate.headline[1], "entry": certificate.issued,
        "edited": len(certificate.ancestors), "features": len(served.verified.ensemble.features),
        "worths": statements, "judged": judged,
        "metrics": {line["metric"]: line for line in (judged["metrics"][:METRICS] if judged else ())},
        "time": home.ledger.log.entry(certificate.reservation).value["time"],
    }  # fmt: skip


def _paid(sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the statements by which one of the two was measured beside the other, on the same rows."""
    found = []
    for one, other in (sides, sides[::-1]):
        against = {"model": other["reference"], "certificate": other["entry"]}
        beside = (each for each in one["worths"] if each.get("against", {}).get("certificate") == other["entry"])
        found += [statement | {"model": one["reference"], "against": against} for statement in beside]
    return found


def _curves(first: Served, second: Served) -> tuple[list[Markup], str]:
    """Return drawings of the features that differ most, and in a sentence how far the models differ; or why they have
    no curves to compare.
    """
    try:
        found = compare(first.verified.ensemble, second.verified.ensemble, (first.reference, second.reference))
    except InputError as error:
        return [], error.message
    drawn = panels(found, PAGE)[:DRAWN]
    return [Markup(figure(panel)) for panel in drawn], found.summary()  # made of numbers and of escaped names


DOORS = (page_door("GET", "/ui/models/{name}/compare", SCOPES, comparison, "Two models side by side"),)
