"""A statement of worth: what a certified model was measured to be worth, and what the measurement cost in privacy.

An in-toto Statement v1 about the model's file, as the certificate is, with a predicate of its own; in a DSSE envelope,
bound to the ledger by an `evaluated` entry. It states the noisy counts, from which every figure follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from accountant.certificates.statement_kind import CountedRows, CountsPredicate, StatementKind, Whole
from dpserve_verify.certificates import stated
from dpserve_verify.certificates.predicate import Count, Figure, Hex, Index, StatementForm, Text
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.formats.forms import Form, Limits, form_field

METHOD = (
    "each interval holds the values that a test of the noisy counts does not refuse; its variance counts how records "
    "were drawn and the noise that was added"
)
OF_BINS = "; figures of bins take each probability for the middle of its bin"
WITHOUT_VALUE = "; no value stands where the interval is the whole scale"
AT_ONCE = (
    "; the intervals of one figure hold in all groups at once, and that of a gap, the largest less the smallest, is "
    "what they leave it among the groups it names"
)
COVERS = (
    "an answer of a level holds all that scores no more than the first bin at which the noisy counts of the bins reach "
    "the level's share of the noisy count of all; a score is 1 less the chance of the true class, or the error's size. "
    "Promised: of a record that is drawn as those that were counted, in any order alike, an answer holds the truth at "
    "least as often as the level says, on average over records, over which ones were counted and over the noise; where "
    "groups have counts of their own, in each of them. Not promised: of any one record, of groups that are not named, "
    "nor once people or how they are drawn have changed"
)
Number = Annotated[str, Limits(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$", longest=60)]


class ModelForm(Form):
    """The model that was measured."""

    name: Text
    certificate: Index = form_field(about="index of the entry that certifies it")
    target: Text = form_field(about="what it predicts")
    classes: list[Text] | None = form_field(about="null where it answers a number")
    range: list[Text] | None = form_field(default=None, about="of a number, the ends of its public range")


class OtherForm(ModelForm):
    """The model that it was compared with, on the same rows."""

    sha256: Hex = form_field(about="of its file")
    seen: bool = form_field(about="whether it was learnt from rows of this part")


class RowsForm(CountedRows):
    """On what it was measured."""

    seen: bool = form_field(
        about="whether the model, or what it was made from, was learnt from rows of this part: it looks better then"
    )
    seen_by_bins: list[Index] | None = form_field(
        default=None,
        key="seenByBins",
        about="profiles of this part that the model's bins, or its start, follow from",
        limits=Limits(shortest=1),
    )
    schema_digest: Hex = form_field(key="schema", about="sha256 of the public schema file")


class MetricForm(Form):
    """One figure and its interval."""

    metric: Text
    class_name: Text | None = form_field(default=None, key="class", about="the class that it speaks of")
    group: Text | None = form_field(default=None, about="the group that it speaks of")
    groups: list[Text] | None = form_field(
        default=None, about="of a gap, the groups that it is the largest one between"
    )
    value: Number | None = form_field(about="null where the counts do not tell")
    low: Number
    high: Number


class GroupsForm(Form):
    """By which public groups records were counted."""

    column: Text
    names: list[Text] = form_field(about="of each group, in the order of the counts", limits=Limits(shortest=1))


class CountsForm(Form):
    """What was released: a count in every cell, with noise."""

    kind: Literal[
        "binary",
        "classes",
        "number",
        "classes-scores",
        "paired-classes",
        "paired-number",
        "cover-classes",
        "cover-number",
    ] = form_field(
        about="binary: true class by bin of chance; classes: true class by answer; number: errors, values; "
        "classes-scores: that, each class by bin of its chance, and the log loss, in parts; "
        "paired-classes: (wrong, right) by the other's; paired-number: differences of squared errors, the other's; "
        "cover-classes, cover-number: bins of the score, six times each record, then all records"
    )
    rows: Count
    columns: Count
    link: Text = form_field(about="what a score means, as in ensemble.json")
    counts: list[Whole]
    variance: Figure = form_field(about="of the noise in each count")
    groups: GroupsForm | None = form_field(default=None, about="where each group has a histogram, one after another")


class WorthPredicate(CountsPredicate):
    """What a model is worth."""

    model: ModelForm
    against: OtherForm | None = form_field(default=None, about="the model that it was compared with, where it was")
    rows: RowsForm
    histogram: CountsForm
    metrics: list[MetricForm] = form_field(limits=Limits(shortest=1))
    better: bool = form_field(
        about="by the interval: than what it was compared with; else, than a model that always answers the same"
    )
    method: Text


class WorthStatement(StatementForm):
    """An in-toto Statement v1 about exactly one ONNX file."""

    predicate_type: Literal["https://dpserve/model-worth/v1"] = form_field(key="predicateType")
    predicate: WorthPredicate


Worth = stated.Stated[WorthPredicate]


class WorthKind(StatementKind[WorthPredicate]):
    """What a certified model was measured to be worth; it is about the model's file."""

    rule, form, folder = stated.WORTH, WorthStatement, "evaluations"


WORTH = WorthKind()


def method_of(histogram: Mapping[str, Any]) -> str:
    """Return how the figures of such counts are made."""
    if histogram["kind"].startswith("cover-"):
        return COVERS
    of_bins = OF_BINS if histogram["kind"] == "binary" else ""
    return METHOD + of_bins + WITHOUT_VALUE + (AT_ONCE if histogram.get("groups") else "")


def figure(value: float) -> str:
    """Return a float as statements spell it: exact decimals."""
    return decimal_string(Decimal(repr(value)))
