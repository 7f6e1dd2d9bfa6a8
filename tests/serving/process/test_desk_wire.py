"""Messages of the price desk: values come back as they were sent, and nothing that comes is run."""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from ledgers import registration

from dpserve_verify.errors import BudgetRefused
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from serving.process.workers.desk_wire import MAX_BYTES, Wire, from_plain, function_of, name_of, to_plain
from training.learners import LEARNERS
from training.planning import price_engine
from training.session.session import Public

ENGINE = ["training.planning.price_engine"]
FEATURES = (BooleanFeature("a"), CategoricalFeature("b", ("x", "é")), NumericFeature("c", (0.1, 0.25, 1e300)))
PUBLIC = Public(FEATURES, "y", ("a", "b"), 1000, Relation.ADD_REMOVE, Budget.of("1", "1e-6"), False)


@pytest.fixture
def wires():
    ours, theirs = socket.socketpair()
    yield Wire(ours), theirs
    ours.close()
    theirs.close()


def test_values_come_back_as_they_were_sent(wires):
    ours, theirs = wires
    offers = [price_engine.offer(name, "{}", PUBLIC) for name in ("lazybb", "ebm", "forest")]
    values = [
        PUBLIC, offers, registration(), price_engine.references(tuple(LEARNERS), PUBLIC), None, True,
        -(1 << 70), 0.1, "\0é",
        {1: (), (2, "x"): frozenset({Decimal("0.10")}), "is": {"of": Fraction(1, 3)}}, b"\xff", [date(2026, 1, 2)],
        datetime(2026, 1, 2, 3, 4, 5, 6), float("inf"), Relation.REPLACE_ONE,
    ]  # fmt: skip
    for value in values:
        Wire(theirs).send(value)
        assert ours.is_ready(5)
        found = ours.receive()
        assert found == value
        assert repr(found) == repr(value)
        assert type(found) is type(value)
    error = BudgetRefused("too much", asked={"epsilon": Decimal(9)})
    found = from_plain(to_plain(error))
    assert (type(found), str(found), found.to_json()) == (BudgetRefused, "too much", error.to_json())
    for function in (price_engine.offer, price_engine.floor, price_engine.fit, price_engine.references):
        assert function_of(name_of(function), ENGINE) is function


@pytest.mark.parametrize(
    "message",
    [
        {"is": "subprocess:Popen", "of": ["true"]},
        {"is": "os:system", "of": ["true"]},
        {"is": "builtins:eval", "of": "1"},
        {"is": "accountant.home:Home.open", "of": []},
        {"is": "accountant.keys.private_keys:shutil", "of": []},
        {"is": "training.planning.price_engine:warm", "of": []},
        {"is": "training.planning.price_engine:PriceEngine", "of": []},
        {"is": "training.session.session:Public", "of": [1]},
        {"is": "dpserve_verify.privacy.budget:Relation", "of": "nothing"},
        {"is": "Decimal", "of": "x"},
        {"is": "dict", "of": [[[], 1]]},
        {"of": 1},
        {"is": ["list"], "of": []},
    ],
)
def test_what_is_no_message_of_ours_is_refused(wires, message):
    ours, theirs = wires
    raw = json.dumps(message).encode()
    theirs.sendall(struct.pack(">I", len(raw)) + raw)
    with pytest.raises(ValueError, match="message: cannot be understood"):
        ours.receive()


def test_nothing_that_comes_is_run_and_no_function_but_the_desks(wires, tmp_path):
    ours, theirs = wires

    class Trap:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    raw = pickle.dumps(Trap())
    theirs.sendall(struct.pack(">I", len(raw)) + raw)
    with pytest.raises(ValueError, match="message: cannot be understood"):
        ours.receive()
    assert not (tmp_path / "ran").exists()
    for size in (MAX_BYTES + 1, 0xFFFFFFFF):
        theirs.sendall(struct.pack(">I", size))
        with pytest.raises(ValueError, match="at most"):
            ours.receive()
    for value in (Trap(), object(), {"a": lambda: None}, Trap):
        with pytest.raises(ValueError, match="of no kind that is sent"):
            to_plain(value)
    for name in (
        "os:system",
        f"{ENGINE[0]}:canonical",
        f"{ENGINE[0]}:claim",
        "x",
        ":",
    ):
        with pytest.raises(ValueError, match="is none of"):
            function_of(name, ENGINE)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        ours.receive()
