"""The statement of an attack on a certified model, which was registered before that was trained: a lower bound of its
privacy loss beside the claim. It is about the model's file, and tells of no row of a person.
"""

from __future__ import annotations

from typing import Literal

from accountant.certificates.statement_kind import CountedRows, CountsPredicate, StatementKind
from dpserve_verify.certificates import stated
from dpserve_verify.certificates.attack import AttackForm
from dpserve_verify.certificates.predicate import Index, StatementForm, Text
from dpserve_verify.formats.forms import Form, form_field

METHOD = (
    "the model's learner ran again and again, by its parameters, plan and noise, on made-up rows alone: in each run a "
    "canary of so many copies was there or not, by a fair coin, and it was guessed which from what that run released. "
    "No row of a person was read. A chance below the claim is no proof of the claim"
)


class AttackedModel(Form):
    """The model that was attacked."""

    name: Text
    certificate: Index = form_field(about="index of the entry that certifies it")


class AttackPredicate(CountsPredicate):
    """What the guesses show of a claim."""

    model: AttackedModel
    rows: CountedRows = form_field(about="whose claim it is: none of these rows was read")
    attack: AttackForm
    method: Text


class AttackStatement(StatementForm):
    """An in-toto Statement v1 about exactly one ONNX file."""

    predicate_type: Literal["https://dpserve/model-attack/v2"] = form_field(key="predicateType")
    predicate: AttackPredicate


Attack = stated.Stated[AttackPredicate]


class AttackKind(StatementKind[AttackPredicate]):
    """A lower bound of the privacy loss of a certified model."""

    rule, form, folder, release = stated.ATTACK, AttackStatement, "attacks", "model"


ATTACK = AttackKind()
