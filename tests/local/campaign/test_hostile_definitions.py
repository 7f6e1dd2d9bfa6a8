"""Definitions that a platform with a pinned key has signed, and that no owner may be harmed by: refused in words."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from decimal import Decimal
from typing import Any

import pytest

from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from local.campaign.questions import question_from_payload
from local.owner.settings import Pinned, Policy
from local.reports.coordinates import Coordinates
from local.reports.definition import Definition
from local.reports.question import LIMIT, STATEMENT_TYPE, Question
from local.reports.shared import SharedDefinition
from local.turns.lines import Lines, plain_coordinates
from models.features.features import BooleanFeature, CategoricalFeature, Feature

BOOLEAN = (BooleanFeature("b"),)
ONE = Coordinates(BOOLEAN, ((1,),), (0,)).to_json()
REPORTS: dict[str, Any] = {
    "campaign": "c", "population": "p", "model": "m", "learner": "local-linear", "epsilon": "1", "target": "y",
    "features": json.dumps([BOOLEAN[0].to_json()]), "owners": 100, "least": 1, "classes": ["a", "b"],
    "seed": "00" * 32, "public_rows": "11" * 32, "candidates": 64, "favoured": 8, "coordinates": ONE,
}  # fmt: skip
OWN = ("seed", "public_rows", "candidates", "favoured", "coordinates")
SHARES: dict[str, Any] = {key: value for key, value in REPORTS.items() if key not in OWN} | {
    "learner": "shared-additive", "delta": "0.000001", "groups": 8, "noise_multiplier": "6", "bounded": "null",
    "aggregators": [{"name": name, "seal": seal * 32, "sign": sign * 32}
                    for name, seal, sign in (("x", "aa", "bb"), ("y", "cc", "dd"))],
}  # fmt: skip
NUMBER = {**SHARES, "classes": [], "bounded": "[0.0, 10.0]"}


def payload(body: dict[str, Any], kind: type[Question]) -> bytes:
    digest = hashlib.sha256(canonical.encode(body, LIMIT)).hexdigest()
    subject = [{"name": body["campaign"], "digest": {"sha256": digest}}]
    head = {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": kind.TYPE, "predicate": body}
    return canonical.encode(head, LIMIT)


def wide(size: int, features: tuple[Feature, ...] = BOOLEAN) -> dict[str, Any]:
    return Coordinates(features, ((1,) * size,), (0,) * size).to_json()


def as_text(*features: dict[str, Any]) -> str:
    return json.dumps(features)


def numeric(edges: str) -> str:
    return f'[{{"name": "b", "type": "numeric", "edges": {edges}}}]'


DEEP = "[" * 100_000 + "]" * 100_000
REFUSED = {
    "deep features": {"features": DEEP},
    "less deep features": {"features": "[" * 900 + "]" * 900},
    "no features": {"features": "[]", "coordinates": {"weights": [], "offset": [0]}},
    "features are a number": {"features": "5"},
    "a feature is a number": {"features": "[5]"},
    "the same feature twice": {
        "features": as_text(*[BOOLEAN[0].to_json()] * 2), "coordinates": {"weights": [[1], [1]], "offset": [0]}},
    "the target is a feature": {"target": "b"},
    "edges are text": {"features": numeric('"abc"')},
    "edges overflow": {"features": numeric("[1e999]")},
    "edges are NaN": {"features": numeric("[NaN]")},
    "edges of many digits": {"features": numeric("[" + "9" * 100_000 + "]")},
    "no classes": {"classes": []},
    "one class": {"classes": ["a"]},
    "the same class twice": {"classes": ["a", "a"]},
    "sixty thousand classes": {"classes": [f"{at:x}" for at in range(60_000)]},
    "no coordinates": {"coordinates": None},
    "many coordinates": {"coordinates": wide(100_000), "candidates": 4096},
    "many coordinates, few candidates": {"coordinates": wide(100_000), "candidates": 2, "favoured": 1},
    "many coordinates, many classes": {"coordinates": wide(4_000), "classes": [f"{at}" for at in range(32)]},
    "work beyond": {"coordinates": wide(2_000), "candidates": 4096},
    "no candidates": {"candidates": 0},
    "a learner of another kind": {"learner": "local-stump"},
}  # fmt: skip
REFUSED_SHARES = {
    **{f"range {ends}": {"bounded": ends} for ends in (
        "[-Infinity, 10.0]", "[0.0, Infinity]", "[-Infinity, Infinity]", "[NaN, NaN]", "[NaN, 1.0]",
        "[-1e+308, 1e+308]", "[0.0, 1e+301]", "[10.0, 0.0]", "[0.0, 0.0]", "[1e999, 2.0]", "[null, 1.0]", "[0.0]",
        "[0.0, 1.0, 2.0]", "{}", "5", '["0", "1"]', "[true, 2.0]", "[" + "9" * 400 + ", 1.0]", DEEP, "[" * 100_000,
    )},
    "classes and a range": {"classes": ["a", "b"]},
    "neither": {"bounded": "null"},
    "a key that nothing can be sealed to": {"aggregators": [
        {"name": "x", "seal": "00" * 32, "sign": "bb" * 32}, SHARES["aggregators"][1]]},
    "another one": {"aggregators": [
        {"name": "x", "seal": "01" + "00" * 31, "sign": "bb" * 32}, SHARES["aggregators"][1]]},
    "the same aggregator twice": {"aggregators": [SHARES["aggregators"][0]] * 2},
    "aggregators are a number": {"aggregators": 5},
    "groups without end": {"groups": 2**50},
    "five thousand features": {"features": as_text(*[{"name": f"f{at}", "type": "boolean"} for at in range(5_000)])},
    "the target is a feature": {"target": "b"},
    "the same feature twice": {"features": as_text(*[BOOLEAN[0].to_json()] * 2)},
}  # fmt: skip


def refused(raw: bytes) -> None:
    began = time.process_time()
    with pytest.raises(CertificateInvalid) as error:
        question_from_payload(raw)
    assert len(str(error.value)) < 400
    assert time.process_time() - began < 5


def test_what_is_asked_for_in_good_faith_is_taken():
    assert isinstance(question_from_payload(payload(REPORTS, Definition)), Definition)
    assert isinstance(question_from_payload(payload(SHARES, SharedDefinition)), SharedDefinition)
    assert question_from_payload(payload(NUMBER, SharedDefinition)).bounded == (0.0, 10.0)
    assert question_from_payload(payload({**REPORTS, "coordinates": wide(900)}, Definition)).dimension == 901


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_reports_are_refused_in_words(name):
    refused(payload({**REPORTS, **REFUSED[name]}, Definition))


@pytest.mark.parametrize("name", REFUSED_SHARES)
def test_hostile_shares_are_refused_in_words(name):
    refused(payload({**NUMBER, **REFUSED_SHARES[name]}, SharedDefinition))


def test_a_regression_that_takes_long_is_not_accepted():
    body = {**REPORTS, "coordinates": wide(1_024), "learner": "local-lr", "candidates": 2, "favoured": 1}
    policy = Policy(Decimal(9), Decimal(9), question=Pinned("y", ("a", "b"), ("b",)))
    policy.check(question_from_payload(payload({**body, "coordinates": wide(1_023)}, Definition)))
    with pytest.raises(InputError, match="a regression of 1025 numbers"):
        policy.check(question_from_payload(payload(body, Definition)))


def test_a_category_of_many_values_takes_no_square_of_memory():
    """50,000 values: a table of one of each would be 20 GB."""
    values = tuple(f"{at:x}" for at in range(20_000))
    feature = CategoricalFeature("b", values)
    body = {
        **REPORTS, "features": as_text(feature.to_json()),
        "coordinates": Coordinates((feature,), ((1,),) * feature.bins, (0,)).to_json(),
    }  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    definition = question_from_payload(payload(body, Definition))
    assert isinstance(definition, Definition)
    assert definition.coordinates.tables[0].shape == (20_002, 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes
    assert plain_coordinates(BOOLEAN).size == 1
    assert Lines(plain_coordinates(BOOLEAN), "centroids", 1024).dimension(1) == 3
