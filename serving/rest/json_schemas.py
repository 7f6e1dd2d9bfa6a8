"""JSON Schemas (2020-12) of every answer, as the OpenAPI description gives them and the tests hold the server to them.

An object may gain fields later, so none is closed to more; what is `required` stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountant.ledger.families.records import State
from accountant.ledger.schedules import PERIODS
from dpserve_verify.privacy.budget import Relation
from models.features.notes import KINDS
from models.store.standing import Standing
from models.worth.judging import OUTCOMES
from serving.wire.field_words import in_words

Shape = Mapping[str, Any]

TEXT: Shape = {"type": "string"}
COUNT: Shape = {"type": "integer", "minimum": 0}
REAL: Shape = {"type": "number"}
TRUTH: Shape = {"type": "boolean"}
ANY_OBJECT: Shape = {"type": "object"}
DECIMAL: Shape = {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$", "description": "a decimal, every digit of it"}
SHARE: Shape = {"type": "string", "pattern": r"^-?[0-9]+\.[0-9]{6}$", "description": "of the whole, six places"}
SHA256: Shape = {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "sha256 in hex"}
BASE64: Shape = {"type": "string", "pattern": "^[A-Za-z0-9+/]*=*$"}
TIME: Shape = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"}
DATE: Shape = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}
RELATION: Shape = {"enum": [relation.value for relation in Relation]}
LABEL: Shape = {"type": ["string", "number", "boolean"]}


def record(required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None, says: str = "") -> Shape:
    """Return the schema of an object with these fields; `says` describes it."""
    shapes = {**required, **(optional or {})}
    fields = {name: {**shape, **in_words(name, shape)} for name, shape in shapes.items()}
    about = {"description": says} if says else {}
    return {"type": "object", **about, "required": list(required), "properties": fields}


def array(items: Shape) -> Shape:
    """Return the schema of a list of such items."""
    return {"type": "array", "items": items}


def table(values: Shape) -> Shape:
    """Return the schema of an object whose names are not known beforehand."""
    return {"type": "object", "additionalProperties": values}


def maybe(shape: Shape) -> Shape:
    """Return the schema with null admitted as well."""
    null: Shape = {"type": "null"}
    return shape if null in shape.get("anyOf", ()) else {"anyOf": [shape, null]}


def either(*shapes: Shape) -> Shape:
    """Return the schema of a value that has one of these."""
    return {"anyOf": list(shapes)}


# Budgets

BUDGET = record({"epsilon": DECIMAL, "delta": DECIMAL})
PRICE = record(
    {"pure": DECIMAL, "unbounded": COUNT, "rdp": table(DECIMAL)},
    says="what is added up: the pure price, how many releases have none, and the Renyi price at each order",
)
USED = record({"epsilon": DECIMAL, "share": SHARE, **PRICE["properties"]})
ACCOUNT = record(
    {
        "account": {"type": "string", "enum": ["family", "block", "person", "quota", "rows"]},
        "family": TEXT,
        "words": TEXT,
    },
    {"block": COUNT, "part": TEXT, "analyst": TEXT, "closed_by": COUNT},
    says="what a job is charged to: a family, a block, the total for one person over all blocks, an analyst's quota; "
    "rows: none are on disk any more",
)
_ROOM = {
    "epsilon": {**DECIMAL, "description": "the total minus what is spent and reserved, converted at delta"},
    "share": SHARE,
    "one_job": maybe(record(BUDGET["properties"], {"noise": {"type": "string", "enum": ["gaussian"]}})),
    "words": {**TEXT, "description": "how much is used, and what one more job may ask for"},
    "binding": {**ACCOUNT, "description": "lets no larger job in"},
    "least": {**ACCOUNT, "description": "whose share it is: of all accounts the least"},
}
_BLOCKS = {"window": {**array(COUNT), "description": "of a dataset that grows: the first and the last block read"}}
_NAMED = {"name": {"type": "string", "enum": ["roomiest", "newest", "all"]}}
_GROWN = {**_BLOCKS, "windows": array(record({**_NAMED, **_ROOM}, _BLOCKS))}
LEFT = record(
    _ROOM,
    _GROWN,
    says="share: of the criterion that lasts longest; one_job: a single job of at most so much is admitted now "
    "(`noise`: if all that it releases has this noise), null: none. Of a dataset that has grown, where no blocks are "
    "said: on the one block with most room, `window`; `windows` has the newest block and all together as well",
)
_STANDING = {
    "total": BUDGET, "reserved": USED, "spent": USED, "left": LEFT,
    "account": {**ACCOUNT, "description": "of which most is used: total, reserved, spent are its"},
    "largest": {**DECIMAL, "description": "the largest total epsilon that was ever in force"},
    "closed_by": {**maybe(COUNT), "description": "the job that took the whole total: nothing more is admitted"},
}  # fmt: skip
FAMILY_BUDGET = record(_STANDING)
STANDING = record(
    {**_STANDING, "jobs_left": table(COUNT)},
    {"priced": {**TRUTH, "description": "in a list, false: nobody has asked for these prices yet; GET the dataset"}},
)
QUOTA = record({"analyst": TEXT, "quota": maybe(TEXT), "used": SHARE})
PROBLEM = {**maybe(TEXT), "description": "what keeps this line alone from being whole: code and words; or null"}
FORECAST = record(
    {"share_per_day": maybe(SHARE), "days_left": maybe(COUNT), "used_up_on": maybe(DATE)},
    says="a straight line, no promise; null in the first seven days",
)
_DATASET = {
    "name": TEXT, "uuid": TEXT, "family": TEXT, "families": array(TEXT), "family_names": array(TEXT),
    "version": COUNT, "relation": RELATION,
    "unit": TEXT, "contributions": COUNT, "epsilon": DECIMAL, "delta": DECIMAL, "schema": SHA256, "budget": STANDING,
    "problem": PROBLEM,
}  # fmt: skip
WINDOW = {**array(COUNT), "description": "of a dataset that grows, the first and the last block that are read"}
BLOCK = record(
    {"block": COUNT, "entry": COUNT, "spent": DECIMAL, "left": SHARE, "closed_by": maybe(COUNT)},
    {"period": record({"column": TEXT, "since": DATE, "until": DATE})},
)
_RECORDS = {
    "blocks": record(
        {"last": COUNT, "dropped": COUNT, "listed": array(BLOCK)},
        says="of a dataset that has grown: how many blocks, how many have no rows any more, where the others stand",
    ),
    "records": {**COUNT, "description": "under replace-one, where it is public"},
    "targets": {**array(TEXT), "description": "where there are several: a job names one of them"},
    "weight": record({"column": TEXT, "most": DECIMAL}, says="of rows that count by a column, one of `most` at most"),
    "query": record(
        {"sha256": SHA256},
        {"reason": TEXT, "by": TEXT},
        says="of rows that a query answered: of its text, which is "
        "not told; a reason where nothing shows that each row is about one unit alone",
    ),
    "refined": array(
        record(
            {
                "entry": COUNT,
                "dataset": TEXT,
                "part": {"enum": ["all", "training", "holdout"]},
                "epsilon": DECIMAL,
                "delta": DECIMAL,
                "same_people": TRUTH,
            },
            says="a profile of rows that the schema was refined from, and what it claimed",
        )
    ),
    "holdout": record({"share": DECIMAL, "budget": record(_STANDING)}, says="what is kept aside for evaluation"),
}
NEXT = {**maybe(TEXT), "description": "the `after` of the next part; null on the last"}
DATASETS = record({"datasets": array(record(_DATASET, _RECORDS)), "next": NEXT})
FAMILIES = record(
    {
        "families": array(
            record(
                {
                    "name": TEXT, "family": TEXT, "datasets": array(TEXT), "relation": RELATION, "unit": TEXT,
                    "epsilon": DECIMAL, "delta": DECIMAL,
                    "budget": record(_STANDING), "problem": PROBLEM,
                },
                says="people who share one budget, and the datasets that hold them",
            )
        ),
        "next": NEXT,
    }
)  # fmt: skip
_ARCHIVED = {**TRUTH, "description": "retired: takes no further job, schedule or block"}
_CURVE = record({}, {**BUDGET["properties"], "rho": DECIMAL, "mu": DECIMAL, "renyi": table(DECIMAL)})
RELEASES = array(
    record(
        {"ledger": TEXT, "reservation": COUNT},
        says="of a signed statement: its release, then those that it was made from and that were not charged before",
    )
)
_CHARGE = record(
    {
        "entry": COUNT, "time": TEXT, "by": TEXT, "mechanism": TEXT, "curve": _CURVE, "words": TEXT, "unit": TEXT,
        "price": PRICE,
    },
    {"contributions": COUNT, "blocks": TEXT, "document": SHA256, "delta": DECIMAL, "releases": RELEASES},
)  # fmt: skip
CHARGES = record(
    {"count": COUNT, "share": SHARE, "words": TEXT, "listed": array(_CHARGE)},
    {"delta": record({"apart": DECIMAL, "spent": DECIMAL})},
    says="releases made elsewhere that were charged to it, the newest first, and their share of what is most used",
)
_LISTED = dict.fromkeys(("range", "values", "missing"), array(TEXT))
_COLUMN = record(dict.fromkeys(("name", "role", "type"), TEXT), _LISTED)
_DETAILS = {
    "columns": array(_COLUMN), "quotas": array(QUOTA), "forecast": FORECAST, "archived": _ARCHIVED, "charges": CHARGES,
}  # fmt: skip
DATASET = record({**_DATASET, **_DETAILS}, _RECORDS)

# Jobs

_PRICED = {
    "dataset": TEXT, "learner": TEXT, "epsilon": DECIMAL, "delta": DECIMAL, "rounds": COUNT, "model": TEXT
}  # fmt: skip
_BY_AUTO = {**TEXT, "description": "why it is this learner, where none was named"}
TUNING = record({"settings": array(ANY_OBJECT), "runs": ANY_OBJECT}, says="the settings to try and how many runs")
_FORECAST = {"better": TRUTH, "least_epsilon": maybe(REAL), "short": TEXT, "says": TEXT}
EXPECTED = record(
    {"auroc": record({"low": REAL, "middle": REAL, "high": REAL}), **_FORECAST},
    says="by what is public or released: what this learner reached on other datasets, or at most (`low` 0) where no "
    "study has it; null of a number",
)
EXPECTED_WIDTH = record(
    {
        "figures": array(record({"metric": TEXT, "half_width": maybe(REAL), "low": REAL, "high": REAL})),
        "enough": maybe(record({"epsilon": DECIMAL, "half_width": REAL})), **_FORECAST,
    },
    says="half of each interval, by public numbers alone: about as wide, and from low to high for nine of ten made-up "
    "models; `half_width` null: no result is to be expected; `enough`: an epsilon from which the first one tells much",
)  # fmt: skip
_FOLLOWING = record(
    {
        "dataset": TEXT, "model": TEXT, "against": maybe(TEXT), "group": maybe(TEXT), "scores": TRUTH, "cover": TRUTH,
        "part": TEXT, "epsilon": DECIMAL, "delta": DECIMAL, "known": maybe(COUNT), "left": ANY_OBJECT,
        "expected": maybe(EXPECTED_WIDTH), "contributions": COUNT,
    },
    {"window": WINDOW},
    says="the evaluation that `evaluate` asks for, charged together with the job to what is kept aside",
)  # fmt: skip
ISSUED = record({"entry": COUNT, "statement": SHA256}, says="the entry that issued it, and its statement's digest")
PLAN = record(
    {
        **_PRICED, "unit": DECIMAL, "relation": RELATION, "certificate": maybe(ISSUED), "warnings": array(TEXT),
        "becomes": {"enum": ["champion", "candidate"]}, "replaces": maybe(TEXT),
        "left": record({**_ROOM, "jobs": COUNT}, _GROWN), "expected": maybe(EXPECTED),
    },
    {"tuning": TUNING, "target": TEXT, "window": WINDOW, "whole": TRUTH, "chosen_by_auto": _BY_AUTO,
        "evaluation": _FOLLOWING, "start": SHA256,},
)  # fmt: skip
VERSION_STATE = {"enum": [each.value for each in Standing]}
CHOSEN = record({"setting": maybe(ANY_OBJECT), "score": {"type": ["integer", "null"]}}, says="released with the model")
JOB = record(
    {
        **_PRICED, "job": COUNT, "state": {"enum": [*(state.value for state in State), "issued"]},
        "progress": record({"done": COUNT, "total": COUNT}, says="in rounds of the plan: nothing of the data"),
        "left": LEFT, "by": TEXT, "time": TIME, "certificate": maybe(ISSUED), "error": maybe(TEXT),
        "waiting": maybe(TEXT), "version": {"type": ["integer", "null"]}, "version_state": maybe(VERSION_STATE),
        "promote": TRUTH, "replaces": maybe(TEXT),
    },
    {
        "chosen": maybe(CHOSEN), "target": TEXT, "whole": {**TRUTH, "description": "it takes the whole total"},
        "evaluates": COUNT, "against": COUNT, "part": TEXT, "chosen_by_auto": _BY_AUTO,
        "blocks": TEXT, "window": WINDOW,
        "profile": {**TRUTH, "description": "it makes a profile, and no model"},
        "contributes": {**SHA256, "description": "it pays for sums of a campaign elsewhere, of this definition"},
        "evaluation": record({"job": COUNT, "state": TEXT}, says="reserved with it, of the model that it makes"),
    },
)  # fmt: skip
JOBS = record({"jobs": array(JOB), "next": maybe(COUNT)})

# Schedules

SCHEDULE = record(
    {
        "name": TEXT, "every": {"enum": [*PERIODS]}, "since": COUNT, "by": TEXT, "dataset": TEXT, "learner": TEXT,
        "epsilon": DECIMAL, "last": maybe(record({"period": COUNT, "job": COUNT})), "stopped": maybe(TEXT),
        "alone": COUNT, "fed": maybe(COUNT), "until": DATE, "fed_until": maybe(DATE), "problem": PROBLEM,
    },
    {
        "delta": DECIMAL, "model": TEXT, "target": TEXT, "blocks": TEXT, "promote": TRUTH, "evaluate": DECIMAL,
        "public": TEXT, "parameters": ANY_OBJECT,
        "rows": record({"data": TEXT, "records": COUNT}, {"each_block": TEXT}),
    },
    says="`alone`: how many more runs the budgets admit if no block comes, `until`: the day on which one is refused "
    "then; `fed`, `fed_until`: the same with a new block each period, null: for as long as that goes on; `since`: "
    "seconds since 1970; `stopped`: why it is asked no more",
)  # fmt: skip
SCHEDULES = record({"schedules": array(SCHEDULE), "next": NEXT})
REMOVED = record({"name": TEXT, "removed": {"const": True}})

# Models

CERTIFICATE = record(
    {
        "entry": COUNT, "statement": SHA256, "model": SHA256, "epsilon": DECIMAL, "delta": DECIMAL,
        "relation": RELATION,
    },
    {
        "vouched": {**TEXT, "description": "by whose word the price is, where a program that read rows made the model"},
        "alone": record(
            {"epsilon": DECIMAL, "delta": DECIMAL},
            says="only of a model that was made from other releases: what it adds; above it is the sum with them",
        ),
    },
)  # fmt: skip
FEATURE = record(
    {"name": TEXT, "type": {"enum": ["numeric", "categorical", "boolean", "date", "datetime", "time"]}},
    {"edges": array(REAL), "values": array(TEXT), "ranks": array(COUNT)},
)
OUTCOME = {
    "enum": [*OUTCOMES],
    "description": "by the interval, against a constant answer, or the model that it was compared with",
}
_WORTH = {
    "job": COUNT, "entry": COUNT, "model": TEXT, "certificate": COUNT, "dataset": TEXT,
    "part": {"enum": ["holdout", "training", "all"]}, "seen": TRUTH, "epsilon": DECIMAL, "delta": DECIMAL,
    "level": DECIMAL, "better": TRUTH, "outcome": OUTCOME, "histogram": ANY_OBJECT,
    "metrics": array(
        record(
            {"metric": TEXT, "value": maybe(TEXT), "low": TEXT, "high": TEXT},
            {"class": TEXT, "group": TEXT, "groups": array(TEXT)},
        )
    ),
}  # fmt: skip
_OTHER = record({"model": TEXT, "certificate": COUNT}, says="what it was compared with, on the same rows")
WORTH = record(
    _WORTH,
    {"against": _OTHER, "seen_by_bins": array(COUNT)},
    says="what a model was measured to be worth, by a signed statement",
)
WRITTEN = record(
    {"decimal": TEXT, "dates": array(TEXT), "true": array(TEXT), "false": array(TEXT)},
    {
        "missing": array(TEXT), "missing_numbers": array(REAL), "thousands": TEXT, "unit_mark": TEXT,
        "first_year": maybe(COUNT), "trim": TRUTH,
    },
)  # fmt: skip
_FORM = {"delimiter": TEXT, "encoding": TEXT}
FORMAT = record(
    {
        "form": record(_FORM, {"sheet": TEXT, "columns": array(TEXT), "skip": COUNT, "skip_rows": array(TEXT)}),
        "columns": table(WRITTEN),
    },
    says="how the files of its dataset are written, as its schema says; of columns those not written as usual",
)
MODEL = record(
    {
        "model": TEXT, "name": TEXT, "version": COUNT, "target": TEXT, "classes": array(LABEL),
        "target_range": maybe(array(REAL)), "features": array(FEATURE), "certificate": CERTIFICATE,
        "format": {**maybe(FORMAT), "description": "null: as files usually are, or the schema is not here"},
        "worth": array(WORTH), "since": array(TEXT),
    }
)  # fmt: skip
MODEL_LINE = record(
    {
        "model": TEXT, "name": TEXT, "version": COUNT, "champion": TRUTH,
        "state": VERSION_STATE,
        "verified": {**maybe(TRUTH), "description": "null: not looked at yet, or retired"},
        "dataset": maybe(TEXT), "learner": maybe(TEXT), "target": maybe(TEXT),
        "certificate": maybe(CERTIFICATE), "problem": maybe(TEXT),
        "better": {**maybe(TRUTH), "description": "than a constant answer, as shown; null: nobody evaluated it"},
        "outcome": {**maybe(OUTCOME), "description": "better, not better, or could not tell; null as `better`"},
    }
)  # fmt: skip
MODELS = record({"models": array(MODEL_LINE), "next": NEXT})
ENVELOPE = record(
    {"payload": BASE64, "payloadType": TEXT, "signatures": array(record({"sig": BASE64}, {"keyid": TEXT}))},
    says="DSSE, the exact bytes as signed",
)
EVALUATION = record({**_WORTH, "envelope": ENVELOPE, "proof": TEXT})
_MEASURED_NEXT = {
    "dataset": TEXT, "part": {"enum": ["holdout", "training", "all"]}, "epsilon": DECIMAL, "delta": DECIMAL,
    "known": {**maybe(COUNT), "description": "the job whose statement answers it for nothing"}, "left": LEFT,
}  # fmt: skip
PLANNED_EVALUATION = record(
    {
        **_MEASURED_NEXT, "model": TEXT, "against": maybe(TEXT), "group": maybe(TEXT),
        "expected": maybe(EXPECTED_WIDTH),
    },
)  # fmt: skip
EXPECTED_OFF = record(
    {"columns": REAL, "pairs": maybe(REAL), **_FORECAST},
    says="how far the noise alone takes a column, and a pair of columns, in the mean, by public numbers: total "
    "variation, from 0, exact, to 1, nothing in common; so far off are synthetic rows at least",
)
_NOISY = {"noise": {"enum": ["laplace", "gaussian"]}, "count_within": TEXT}
PLANNED_PROFILE = record(
    {
        **_MEASURED_NEXT, **_NOISY, "columns": array(TEXT), "pairs": array(array(TEXT)), "around": maybe(TEXT),
        "expected": EXPECTED_OFF,
    },
)  # fmt: skip
TOLD = {**array(maybe(TEXT)), "minItems": 3, "maxItems": 3, "description": "value, low end, high end"}
_PROFILE = {
    "job": COUNT, "entry": COUNT, "dataset": TEXT, "schema": SHA256, "part": {"enum": ["holdout", "training", "all"]},
    "epsilon": DECIMAL, "delta": DECIMAL, "level": DECIMAL, "records": TOLD,
}  # fmt: skip
COLUMN = record(
    {"name": TEXT, "role": TEXT, "type": TEXT, "counts": array(REAL), "missing": TOLD},
    {"edges": array(TEXT), "ends": array(TEXT), "values": array(TEXT), "mean": TOLD, "quantiles": array(TOLD),
     "shares": array(TOLD)},
)  # fmt: skip
CHOSEN_PAIRS = record(
    {"around": TEXT, "scores": array(REAL), "cells": array(array(COUNT)), "variance": TEXT},
    says="how the pairs were chosen privately; null where they were named",
)
PROFILE = record(
    {**_PROFILE, "noise": TEXT, "variance": TEXT, "levels": array(TEXT), "columns": array(COLUMN),
     "pairs": array(record({"columns": array(TEXT), "counts": array(REAL)})), "chosen": maybe(CHOSEN_PAIRS),
     "envelope": ENVELOPE, "proof": TEXT}
)  # fmt: skip
PROFILES = record({"profiles": array(record(_PROFILE))})
_QUESTION = record(
    {
        "select": TEXT, "by": array(TEXT), "where": array(TEXT), "figures": array(TEXT), "kinds": array(TEXT),
        "afterwards": array({**TEXT, "description": "done on the noisy answer"}),
    },
)  # fmt: skip
_COUNTED = {"groups": COUNT, "question": _QUESTION, "expected": record({"rows": COUNT, **_FORECAST})}
PLANNED_ANSWER = record({**_MEASURED_NEXT, **_NOISY, **_COUNTED})
ANSWER = record(
    {
        **{name: kind for name, kind in _PROFILE.items() if name != "records"}, "question": _QUESTION,
        "rows": array({**ANY_OBJECT, "description": "group, and each figure: value, low end, high end"}),
        "of": {**TEXT, "description": "of which rows it is, in words"},
        "envelope": ENVELOPE, "proof": TEXT,
    },
    {
        "scaled": array({**ANY_OBJECT, "description": "of a part of the units: each count of a row as one of all"}),
    },
)  # fmt: skip
STATEMENT = record(
    {"_type": TEXT, "predicateType": TEXT, "subject": array(ANY_OBJECT), "predicate": ANY_OBJECT}, says="in-toto"
)
CERTIFIED = record({"model": TEXT, "envelope": ENVELOPE, "proof": TEXT, "statement": STATEMENT})
_ANSWERED = {"model": TEXT, "target": TEXT, "certificate": CERTIFICATE, "predictions": array(LABEL)}
NOTES = {
    **array(array(record({"field": TEXT, "note": {"enum": [*KINDS]}}, {"to": TEXT}))),
    "description": "where they were asked for: of each record the values that were clipped `to` an end of the range, "
    "that the schema does not list, or that are missing",
}
TABLE = array(array(REAL))
INTERVAL = record({"level": REAL, "ends": TABLE}, says="of each record what other noise would have given")
COVER = record(
    {"level": REAL, "group": maybe(TEXT), "statement": COUNT}, {"sets": array(array(LABEL)), "ends": TABLE},
    "of each record the classes, or the ends of an interval, that hold the truth so often",
)  # fmt: skip
PREDICTED = record(
    _ANSWERED,
    {"classes": array(LABEL), "probabilities": TABLE, "notes": NOTES, "interval": INTERVAL, "cover": COVER},
    "of a model that answers a number, predictions are numbers, without classes and probabilities",
)
EXPLAINED = record(
    {
        **_ANSWERED,
        "unit": {**TEXT, "description": "log odds of the second class, logits (K classes), or the target"},
        "base": either(REAL, array(REAL)),
        "features": {**array(TEXT), "description": "and then pairs that add something together, as age & hours"},
        "contributions": array(array(either(REAL, array(REAL)))),
    },
    {"classes": array(LABEL)},
    "prediction i comes of base + the sum of contributions[i], in `unit`. K classes: K numbers in place of each. "
    "A model of trees is answered with 422, not_additive.",
)

# The ledger

ENTRIES = record(
    {
        "entries": array(record({"index": COUNT, "body": {**TEXT, "description": "the exact text that was hashed"}})),
        "size": COUNT, "next": COUNT,
    }
)  # fmt: skip
CHECKPOINTS = record({"checkpoints": array(record({"size": COUNT, "note": {**TEXT, "description": "a C2SP note"}}))})
PROOF = record({"leaf": COUNT, "size": COUNT, "hashes": array(BASE64)})
GROWTH = record({"from": COUNT, "to": COUNT, "hashes": array(BASE64), "from_root": BASE64, "to_root": BASE64})
ABOUT = record({"service": TEXT, "documentation": TEXT})
ALIVE = record({"alive": {"const": True}})
_WORDS = {"training": "that no worker runs on this machine", "ledger": "that nothing is admitted: its database is away"}
READY = record({"ready": {"const": True}}, {name: {**TEXT, "description": says} for name, says in _WORDS.items()})

# Errors

AT_LEAST = "what is added up, as for an entry; of far too much what it costs at least, which takes less to work out"
_CURVES = {**BUDGET["properties"], "rho": DECIMAL, "mu": DECIMAL}  # of a charge from elsewhere, one of them
REFUSED = record(
    {
        "dataset": TEXT,
        "asked": record({"price": {**PRICE, "description": AT_LEAST}}, {**_CURVES, "renyi": table(DECIMAL)}),
        "spent": USED,
        "left": LEFT,
        "reserved": USED,
        "reason": {"enum": ["budget", "quota"]},
        "would_fit": maybe(record({}, _CURVES)),
    },
    {
        "account": {**ACCOUNT, "description": "the first that does not admit it"},
        "block": COUNT,
        "person": {"type": "boolean", "description": "true: what one person may cost is the reason"},
    },
)
MISFIT = record({}, {"record": COUNT, "field": TEXT}, "which record and field, where one does not fit")
DETAILS: Mapping[str, Shape] = {"budget_refused": REFUSED, "record_invalid": MISFIT}


PROTOCOL_ERROR = record(
    {"error": TEXT, "code": TEXT, "details": ANY_OBJECT}, says="the open inference protocol's: `error` is the message"
)
