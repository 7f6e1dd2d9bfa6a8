"""Documents of others are charged at exactly what they state: signed statements by their plans, histories of DP-SGD by
their steps; what is not theirs, not signed, or about other neighbours is refused.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from math import ceil

import ledgers
import pytest

from accountant.audit.audit import audit_home
from accountant.errors import NameTaken
from accountant.home import Home
from accountant.ledger.families.records import Unit
from accountant.privacy.claims import price
from accountant.privacy.sampled_gaussian import divergence
from dpserve_verify.certificates.certificate import plan_of
from dpserve_verify.certificates.predicate import read_as
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.filter import price_from_json
from training.datasets import decisions
from training.datasets.cost_statements import FORMS
from training.jobs import job
from training.requests import ChargeRequest, ProfileRequest

SAID = {"mechanism": "the ward's", "why": "the same people"}
HISTORY = {"history": [[1.5, 0.01, 100], ["0.9", "0.004", 40]], "mechanism": "rdp"}


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The home of somebody else: its trust file, and what it signed, by kind."""
    home = Home.open(ledgers.place(ledgers.copy(ledgers.trained(), tmp_path_factory.mktemp("other") / "home")))
    job.measure(home, ProfileRequest("adult", "0.1", columns=("age",)), by="test")
    model = json.loads((home.path / "models" / "adult" / "1" / "model.onnx.dsse.json").read_bytes())
    (profile,) = home.path.rglob("profile.dsse.json")
    trust = (home.path / "trust.json").read_text()
    pem = json.loads(trust)["issuers"][0]["pem"]
    return {"home": home, "model": model, "profile": json.loads(profile.read_bytes()), "trust": trust, "pem": pem}


@pytest.fixture
def home(tmp_path):
    home = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    home.ledger.register(ledgers.registration())
    home.ledger.register(ledgers.registration("fixed", relation=Relation.REPLACE_ONE))
    home.ledger.register(ledgers.registration("pure", Budget.of("9", "0")))
    home.ledger.register(ledgers.registration("visits", unit=Unit("person", "name", 4)))
    return home


def charge(home, name="adult", **fields):
    return decisions.charge(home, name, ChargeRequest.of(SAID | fields), "steward")


@pytest.mark.parametrize(("kind", "key"), [("model", "trust"), ("profile", "pem")])
@pytest.mark.parametrize("name", ["adult", "pure"])
def test_a_statement_costs_what_its_plan_comes_to_at_the_dataset_s_own_orders(home, other, kind, key, name):
    entry = charge(home, name, statement=other[kind], key=other[key])["entry"]
    payload = base64.b64decode(other[kind]["payload"])
    _, statement = read_as(payload, FORMS[json.loads(payload)["predicateType"]])
    dataset = home.ledger.dataset(name)
    expected = price(plan_of(statement.predicate.mechanisms), dataset.orders)
    value = home.ledger.log.entry(entry).value
    charged = price_from_json(value["price"], dataset.orders)
    assert charged == dataset.families[0].used
    assert (charged.pure, charged.unbounded) == (expected.pure, 0)
    assert all(0 <= more - less <= 2 for more, less in zip(expected.rdp, charged.rdp, strict=True))  # nano-units
    assert value["document"] == sha256(payload).hexdigest()
    assert [*audit_home(home).problems] == []
    with pytest.raises(NameTaken, match="was charged before"):
        charge(home, name, statement=dict(reversed(other[kind].items())), key=other[key])


def changed(envelope, old, new):
    payload = base64.b64decode(envelope["payload"]).replace(old, new)
    return envelope | {"payload": base64.b64encode(payload).decode()}


def test_a_statement_of_somebody_else_or_of_other_neighbours_is_refused(home, other):
    mine = json.loads((home.path / "trust.json").read_text())["issuers"][0]["pem"]
    model, size = other["model"], home.ledger.log.size()
    for envelope, key, problem in (
        (model, mine, "pinned issuer key.*nothing was charged"),
        (changed(model, b'"epsilon":"0.5"', b'"epsilon":"0.1"'), other["pem"], "does not verify"),
        (model | {"signatures": []}, other["pem"], "signatures"),
        (model | {"payload": "e30="}, other["pem"], "does not verify"),
    ):
        with pytest.raises(CertificateInvalid, match=problem):
            charge(home, statement=envelope, key=key)
    for name, fields, problem in (
        ("adult", {"statement": model}, "key: say whose signature"),
        ("adult", {"key": mine}, "verifies a statement"),
        ("adult", {"statement": model, "key": mine, "rho": "0.1"}, "rho: follows from the statement"),
        ("adult", {"statement": model, "key": mine, "document": "0" * 64}, "document: follows"),
        ("adult", {"statement": model, "key": other["pem"], "unit": "person"}, "protects one record"),
        ("fixed", {"statement": model, "key": other["pem"]}, "speaks of add-remove neighbours"),
        ("visits", {"statement": model, "key": other["pem"]}, "--contributions N"),
        ("visits", {"statement": model, "key": other["pem"], "contributions": 2}, "Renyi curve of one record"),
        ("adult", {"statement": {"epsilon": 1}}, "none of the forms"),
        ("adult", {"statement": HISTORY, "key": mine}, "nothing is signed"),
        ("fixed", {"statement": HISTORY}, "add/remove"),
        ("pure", {"statement": HISTORY}, "no epsilon at delta 0"),
        ("adult", {"statement": HISTORY, "epsilon": "0.1"}, "epsilon: follows"),
    ):
        with pytest.raises(InputError, match=problem):
            charge(home, name, **fields)
    assert home.ledger.log.size() == size
    with pytest.raises(InputError, match="of this very ledger, which charged it as job"):
        charge(other["home"], statement=model, key=other["pem"])


def test_a_history_costs_the_sum_of_its_steps_at_whole_orders(home):
    dataset = home.ledger.dataset("adult")
    entry = charge(home, statement=HISTORY)["entry"]
    value = home.ledger.log.entry(entry).value
    for order in dataset.orders:
        each = [(Decimal("1.5"), Decimal("0.01"), 100), (Decimal("0.9"), Decimal("0.004"), 40)]
        exact = sum(count * Fraction(divergence(noise, rate, ceil(order))) for noise, rate, count in each)
        stated = Fraction(value["curve"]["renyi"][f"{order.normalize():f}"])
        assert 0 <= stated - exact < Fraction(1, 10**9)
        assert Fraction(value["price"]["rdp"][f"{order.normalize():f}"]) == stated
    assert value["price"]["unbounded"] == 1
    assert [*audit_home(home).problems] == []
    split = {"history": [["1.50", "0.010", 60], [Decimal("0.9"), 0.004, 40], [1.5, 0.01, 40]]}
    with pytest.raises(NameTaken):
        charge(home, statement=split)


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([], "1 to 10000 lines"),
        ({}, "1 to 10000 lines"),
        ([[1.0, 0.1]], "line 1 must be"),
        ([[1.0, 0.1, 5], [0, 0.1, 5]], "noise multiplier 0 in line 2"),
        ([[-1, 0.1, 5]], "noise multiplier -1"),
        ([["nan", 0.1, 5]], "finite"),
        ([[1.0, 1.5, 5]], "sample rate 1.5"),
        ([[1.0, 0, 5]], "sample rate 0"),
        ([[1.0, 0.1, 0]], "whole number"),
        ([[1.0, 0.1, -4]], "whole number"),
        ([[1.0, 0.1, 2.5]], "whole number"),
        ([[1.0, 0.1, 2**31]], "whole number"),
        ([[1.0, 0.1, True]], "whole number"),
        ([[1.0, str(1 - at / 10000), 1] for at in range(4000)], "too many kinds of steps"),
    ],
)
def test_what_is_no_history_is_refused_with_its_line(home, history, problem):
    with pytest.raises(InputError, match=problem):
        charge(home, statement={"history": history})
    with pytest.raises(InputError, match="mechanism"):
        charge(home, statement=HISTORY | {"mechanism": "hope"})


def record(variant="Pure DP", model="Central", **parameters):
    deployment = {
        "basic": {"name": "Births of 2014"},
        "dp_variant": {"variant_name": variant},
        "privacy_loss": {"privacy_unit": "Birth", "privacy_parameters": parameters},
        "deployment_model": {"model_name": model},
    }
    return {"url_slug": "births", "status": "Draft", "tier": 2, "deployment": deployment}


@pytest.mark.parametrize(
    ("document", "curve"),
    [
        (record(epsilon=0.98), {"epsilon": "0.98"}),
        (record(epsilon=0.98, delta="0"), {"epsilon": "0.98"}),
        (record("Approximate DP", epsilon=0.5, delta="6e-8"), {"epsilon": "0.5", "delta": "0.00000006"}),
        (record("Zero-concentrated DP", rho=Decimal("0.015")), {"rho": "0.015"}),
    ],
)
def test_a_record_of_the_registry_states_its_variant_s_curve(home, document, curve):
    home.ledger.register(ledgers.registration("apart", Budget.of("3", "0.000001", "0.0000001")))
    entry = charge(home, "apart", statement=document)["entry"]
    assert home.ledger.log.entry(entry).value["curve"] == curve
    with pytest.raises(NameTaken):
        charge(home, "apart", statement=dict(reversed(document.items())))
    assert [*audit_home(home).problems] == []


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (record(epsilon=1.0, delta=1.5e-7), "of Pure DP there must be epsilon, and nothing beside"),
        (record(), "there must be epsilon"),
        (record("Approximate DP", epsilon=1.0), "epsilon and delta"),
        (record("Approximate DP", epsilon=0.01, delta="n^{-2}"), "delta"),
        (record("Approximate DP", epsilon=0.5, delta=1e-8), "sets nothing of its delta apart"),
        (record("Zero-concentrated DP", rho=0.07, epsilon=1.4, delta=1e-5), "must be rho, and nothing beside"),
        (record("Renyi DP", epsilon=1.0), "must name its dp_variant"),
        (record(epsilon=-1), "must be > 0"),
        (record(epsilon=1e400), "finite"),
        (record(model="Local", epsilon=1.0), "is not Central"),
        ({"deployment": []}, "must name its dp_variant"),
        (record() | {"approved": True}, "none of the forms"),
    ],
)
def test_a_record_that_states_no_one_curve_is_refused_with_what_to_state(home, document, problem):
    with pytest.raises(InputError, match=problem):
        charge(home, statement=document)
