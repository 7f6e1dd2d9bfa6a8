"""Edits: what each bin of a model's curves adds, and a new version in which people changed that."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from pydantic.dataclasses import dataclass

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
from serving.operations import Caller, operation
from serving.operations.answers import Body
from serving.process.prices import run_for_request
from serving.rest.json_schemas import COUNT, DECIMAL, REAL, TEXT, TRUTH, array, maybe, record, table
from training.finish.derive import derive
from training.requests.base import CLOSED, Checked

MODEL = "/v1/models/{name}"
DRY_RUN = "a dry run"
_EDITS = {
    "type": "array",
    "items": {"type": "object"},
    "description": "`feature` (a pair: `age & hours`), one of `set`, `smooth`, `clip`, `zero`, `monotone`, and maybe "
    "`why`; of three classes or more also `class`; `bins` is a text, or runs [first, last] of bins by number",
}
Why = Annotated[StrictStr, Field(min_length=1, max_length=500, description="it stays in the model permanently")]
Entry = Annotated[StrictInt, Field(ge=0, description="of the certificate that was looked at")]
Term = Annotated[str | None, Field(description="a feature, or a pair: age & hours; the first feature when left out")]
Label = Annotated[str | None, Field(description="of three classes or more, one of them; the first when left out")]

_BIN, _LABEL = {"bin": COUNT, "values": TEXT}, {"type": ["string", "integer"]}
CURVE = record(
    {
        "model": TEXT,
        "entry": COUNT,
        "unit": TEXT,
        "terms": array(TEXT),
        "feature": TEXT,
        "kind": TEXT,
        "ordered": COUNT,
        "bins": array(
            record(
                {
                    **_BIN,
                    "adds": REAL,
                    "error": maybe(REAL),
                    "count": maybe({"type": "integer"}),
                }
            )
        ),
    },
    {
        **{word: array(TEXT) for word in ("rows", "columns")},
        "class": _LABEL,
        "classes": array(_LABEL),
    },
    says="`ordered`: so many bins, from the first on, stand in an order; `rows`, `columns`: of a pair, whose bins are "
    "the cells row by row; `class`, `classes`: where there are three or more, whose curve it is, and all of them",
)
EDITED = record(
    {
        "base": TEXT,
        "model": maybe(TEXT),
        "champion": TRUTH,
        "edits": array(table(TEXT)),
        "changed": array(
            record(
                {"feature": TEXT, **_BIN, "before": REAL, "after": REAL},
                {"class": _LABEL},
            )
        ),
        "epsilon_spent": DECIMAL,
    },
    says="`model`: the new version, null of a dry run",
)


@dataclass(frozen=True, config=CLOSED)
class EditRequest(Checked):
    """Edits of a model's curves."""

    edits: Annotated[list[Any], WithJsonSchema(_EDITS)]
    reason: Why | None = None
    entry: Entry | None = None
    promote: Annotated[StrictBool, Field(description="make it champion at once")] = False
    dry_run: Annotated[StrictBool, Field(description="say what would change, and make nothing: takes no reason")] = (
        False
    )


@operation("GET", f"{MODEL}/curve", *SCOPES)
def show_curve(
    caller: Caller, name: str, feature: Term = None, class_: Label = None
) -> Annotated[Body, WithJsonSchema(CURVE)]:
    """Show what every bin of a feature adds, with what the noise is and how many records were released."""
    served = caller.model(name)
    all_curves = to_curves(served.verified.ensemble)
    several = all_curves.classes if all_curves.outputs > 1 else ()
    label = class_of(all_curves, several[0] if several and class_ is None else class_)
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


@operation("POST", f"{MODEL}/edits", "train", "promote", needs_prices=True)
def edit_model(caller: Caller, name: str, body: EditRequest) -> Annotated[Body, WithJsonSchema(EDITED)]:
    """Edit a model: a new version, certified as derived from it; or, as a dry run, what would change."""
    check_edits(body.edits)  # what is no list of edits is not sent to the desk
    served = caller.model(name)
    base, model = served.verified, served.reference.partition("@")[0]
    issued, promote = base.certificate.issued, body.promote and not body.dry_run
    if body.entry not in (None, issued):
        raise WrongState(
            f"entry={body.entry}: {name} is {served.reference} by now, of entry {issued}; look at it again",
            model=served.reference,
        )
    if not body.dry_run:
        if body.reason is None:
            raise InputError("reason: must be said, it stays in the model permanently")
        require_edit(caller.home.ledger, caller.rights, model, base.certificate.form.dataset.name, promote)
    note = EditNote(caller.principal, body.reason or DRY_RUN)
    ensemble = base.bundle.ensemble.decode()
    after, made, changed = run_for_request(edit_text, ensemble, json.dumps(body.edits, default=float), note)
    place = None
    if not body.dry_run:
        place = derive(caller.home, base, to_curves(ensemble_from_bytes(after.encode())), promote)
    return {
        "base": served.reference,
        "model": place and f"{place.parent.name}@{place.name}",
        "champion": promote,
        "edits": made,
        "changed": changed,
        "epsilon_spent": "0",
    }


OPERATIONS = (show_curve, edit_model)
