"""The doors to edits: what each bin of a model's curves adds, and a new version in which people changed that."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import Access
from accountant.access.tokens import SCOPES
from accountant.errors import WrongState
from accountant.ledger.model_names import require_edit
from dpserve_verify.errors import InputError
from models.edit.changes import bins_of
from models.edit.curves import class_of, curves_of, to_curves
from models.edit.edit_list import check_edits, edit_text
from models.edit.editing import EditNote
from models.explain.explain import unit
from models.features.features import NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.registry import ensemble_from_bytes
from models.parts.pairs import term_names
from serving.http.routes import Door, access, in_thread, state, with_prices
from serving.process.prices import run_for_request
from serving.process.registry import Served
from serving.process.state import ServingState
from serving.rest import json_schemas
from serving.rest.placing import WHY
from serving.wire.errors import json_response
from serving.wire.request_bodies import check_fields, known_query, query_text, read_body, strict_json
from training.finish.derive import derive

EDIT_BYTES = 1 << 20
MAY = {"reason": (str,), "entry": (int,), "promote": (bool,), "dry_run": (bool,)}


async def show_curve(request: Request) -> Response:
    """Return what every bin of a feature adds, with what the noise is and how many records were released."""
    known_query(request, "feature", "class")
    serving, term = state(request), (query_text(request, "feature"), query_text(request, "class"))
    serving.require_ready()
    return json_response(await in_thread(curve_of, serving.registry.get, request.path_params["name"], *term))


def curve_of(find: Any, reference: str, feature: str | None, of: str | None) -> dict[str, Any]:
    """Return what every bin of a feature adds to the score of the class `of`. InputError where the model has no curves,
    or no such one.
    """
    served: Served = find(reference)
    all_curves = to_curves(served.verified.ensemble)
    several = all_curves.classes if all_curves.outputs > 1 else ()
    label = class_of(all_curves, several[0] if several and of is None else of)
    model = curves_of(all_curves, label)
    terms = term_names(model.features, model.pairs)
    chosen = terms[0] if feature is None else feature
    fields = {
        "model": served.reference,
        "entry": served.verified.certificate.issued,
        "unit": f"log odds of {label}" if several else unit(model),
        "terms": list(terms),
        "feature": chosen,
        "bins": bins_of(model, chosen),
    }
    classes = {"class": label, "classes": list(several)} if several else {}
    return fields | classes | _shape(model, terms.index(chosen))


def _shape(model: AdditiveEnsemble, place: int) -> dict[str, Any]:
    """Return how a term's bins lie: how many stand in an order, or the rows and columns of a pair's map."""
    if place < len(model.features):
        feature = model.features[place]
        kind = "numeric" if isinstance(feature, NumericFeature) else feature.kind
        return {"kind": kind, "ordered": feature.missing if isinstance(feature, NumericFeature) else 0}
    pair = model.pairs[place - len(model.features)]
    sides = {word: pair.labels(model.features, side) for side, word in enumerate(("rows", "columns"))}
    return {"kind": "pair", "ordered": 0, **sides}


async def edit_model(request: Request) -> Response:
    """Make a new version of a model, certified as derived from it; or, as a dry run, return what would change."""
    known_query(request)
    body = check_fields(strict_json(await read_body(request, EDIT_BYTES)), {"edits": (list,)}, MAY)
    serving = state(request)
    serving.require_ready()
    arguments = serving, access(request), request.path_params["name"], body
    return json_response(await with_prices(request, apply_edits, *arguments))


def apply_edits(serving: ServingState, rights: Access, reference: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Edit a model, or return what would change. Forbidden, InputError; WrongState where the model is another than was
    looked at, or has these edits in a version already.
    """
    check_edits(fields["edits"])  # what is no list of edits is not sent to the desk
    served = serving.registry.get(reference)
    base, dry = served.verified, fields.get("dry_run", False)
    issued, promote = base.certificate.issued, fields.get("promote", False)
    if fields.get("entry", issued) != issued:
        raise WrongState(
            f"entry={fields['entry']}: {reference} is {served.reference} by now, of entry {issued}; look at it again",
            model=served.reference,
        )
    if not dry:
        if "reason" not in fields:
            raise InputError("reason: must be said, it stays in the model permanently")
        dataset = base.certificate.form.dataset.name
        require_edit(serving.home.ledger, rights, served.name, dataset, promote)
    note = EditNote(rights.principal, fields.get("reason", "a dry run"))
    ensemble = base.bundle.ensemble.decode()
    after, made, changed = run_for_request(edit_text, ensemble, json.dumps(fields["edits"], default=float), note)
    body: dict[str, Any] = {"base": served.reference, "model": None, "champion": promote and not dry}
    body |= {"edits": made, "changed": changed, "epsilon_spent": "0"}
    if not dry:
        place = derive(serving.home, base, to_curves(ensemble_from_bytes(after.encode())), promote)
        body["model"] = f"{place.parent.name}@{place.name}"
    return body


EDITS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["edits"],
    "properties": {
        "edits": {
            "type": "array",
            "items": {"type": "object"},
            "description": "`feature` (a pair: `age & hours`), one of `set`, `smooth`, `clip`, `zero`, `monotone`, and "
            "maybe `why`; of three classes or more also `class`; `bins` is a text, or runs [first, last] of bins by "
            "number",
        },
        "reason": {**WHY, "maxLength": 500},
        "entry": {"type": "integer", "minimum": 0, "description": "of the certificate that was looked at"},
        "promote": {"type": "boolean", "description": "make it champion at once"},
        "dry_run": {"type": "boolean", "description": "say what would change, and make nothing: takes no reason"},
    },
}
LABEL = {"type": ["string", "integer"]}
BIN = {"bin": json_schemas.COUNT, "values": json_schemas.TEXT}
CURVE = json_schemas.record(
    {
        "model": json_schemas.TEXT,
        "entry": json_schemas.COUNT,
        "unit": json_schemas.TEXT,
        "terms": json_schemas.array(json_schemas.TEXT),
        "feature": json_schemas.TEXT,
        "kind": json_schemas.TEXT,
        "ordered": json_schemas.COUNT,
        "bins": json_schemas.array(
            json_schemas.record(
                {
                    **BIN,
                    "adds": json_schemas.REAL,
                    "error": json_schemas.maybe(json_schemas.REAL),
                    "count": json_schemas.maybe({"type": "integer"}),
                }
            )
        ),
    },
    {
        **{word: json_schemas.array(json_schemas.TEXT) for word in ("rows", "columns")},
        "class": LABEL,
        "classes": json_schemas.array(LABEL),
    },
    says="`ordered`: so many bins, from the first on, stand in an order; `rows`, `columns`: of a pair, whose bins are "
    "the cells row by row; `class`, `classes`: where there are three or more, whose curve it is, and all of them",
)
EDITED = json_schemas.record(
    {
        "base": json_schemas.TEXT,
        "model": json_schemas.maybe(json_schemas.TEXT),
        "champion": json_schemas.TRUTH,
        "edits": json_schemas.array(json_schemas.table(json_schemas.TEXT)),
        "changed": json_schemas.array(
            json_schemas.record(
                {"feature": json_schemas.TEXT, **BIN, "before": json_schemas.REAL, "after": json_schemas.REAL},
                {"class": LABEL},
            )
        ),
        "epsilon_spent": json_schemas.DECIMAL,
    },
    says="`model`: the new version, null of a dry run",
)
ONE = "/v1/models/{name}"
TERM = {"type": "string", "description": "a feature, or a pair: age & hours; the first feature when left out"}
CLASS = {"type": "string", "description": "of three classes or more, one of them; the first when left out"}
DOORS = (
    Door(
        "GET", f"{ONE}/curve", SCOPES, show_curve, "What the bins of a feature add", gives=CURVE,
        query={"feature": TERM, "class": CLASS},
    ),
    Door(
        "POST", f"{ONE}/edits", ("train", "promote"), edit_model, "Edit a model: a new version", takes=EDITS,
        gives=EDITED, errors=(409,),
    ),
)  # fmt: skip
