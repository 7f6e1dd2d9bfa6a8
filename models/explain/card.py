"""The model card: one page of Markdown that travels with a model. It holds released and public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dpserve_verify.errors import InputError
from models.explain.markdown import plain
from models.features.features import BooleanFeature, CategoricalFeature, Feature, number_text
from models.parts.released import Released

NO_ACCURACY = (
    "- **Not that the model is right.** This card states no accuracy: measured on private records, that would cost "
    "budget."
)
LISTED = 12  # categories named before the rest is counted

_RELATIONS = {
    "add-remove": "whether or not {unit} is in the data",
    "replace-one": "whatever {unit} says (how many there are is public)",
}

_CARD = """\
# Model card: {target}, learnt from {dataset} under differential privacy

{form}{learner} that answers {answers}. It is
meant for records of the shape listed below, from the population that the dataset was drawn from. It is exported as ONNX
and reads raw records.

## What is promised

**({epsilon}, {delta})-differential privacy**, neighbours by {relation}, unit of privacy: {unit}.

In plain words: {neighbours}, the chance of any given model
to come out changes by a factor of at most e^{epsilon}{but}.
This holds against anyone who sees the model, whatever else they know, and permanently. The certificate beside this card
binds the claim to the model's exact bytes. Verify the certificate; this page only explains it.
{made}
## What is not promised

{no_accuracy}
- **Not fairness, and not causes.** {parts} are associations in the training data, noise included.
- **Not secrecy of what is true of many.** The model may reveal what a group has in common; it hardly reveals whether
  a given one was in the data.
- **Not what else was published** about the same people, by others or outside this ledger: privacy losses add up.
- **Not the inputs of a prediction.** Whoever runs the model sees the records sent to it.

## How it decides

{decides}
{edits}
## Inputs

A record carries every feature; a value that is not known is null. Texts that are not listed count as "other", and
missing values have a place of their own.

| feature | type | values |
|---|---|---|
{inputs}
"""

_EDITED = """
## What people changed

After the release, people changed what some features add. A change is made on released numbers alone: it costs no
privacy, and the promise above holds as it stands.

| when | who | feature | what | why |
|---|---|---|---|---|
{rows}
"""


class Carded(Released, Protocol):
    """A released model that has words for a card."""

    @property
    def noun(self) -> str:
        """Return what the model is called, with its article."""

    @property
    def parts(self) -> str:
        """Return what the model is made of."""

    def card_section(self) -> str:
        """Return how it decides, in Markdown."""


def model_card(ensemble: Carded, certificate: Mapping[str, Any]) -> str:
    """Write the model card in Markdown. Of `certificate` only these are read, so that nothing unpaid can slip in:
    `epsilon`, `delta` (decimal texts), `relation` ("add-remove" or "replace-one"), `unit` (what one unit of privacy is:
    "one record", "one person") and, where present, `dataset`, `learner` and `made` (sentences that follow from its
    plan). Raises InputError when one of the four is missing or unknown.
    """
    absent = [key for key in ("epsilon", "delta", "relation", "unit") if key not in certificate]
    if absent:
        raise InputError(f"certificate: missing {absent}")
    if certificate["relation"] not in _RELATIONS:
        raise InputError(f"relation={certificate['relation']!r}: must be one of {sorted(_RELATIONS)}")
    claim = {key: plain(certificate[key]) for key in ("epsilon", "delta", "relation", "unit")}
    sentences: tuple[str, ...] = certificate.get("made", ())
    cells = [(edit.at, edit.by, edit.feature, edit.what, edit.why) for edit in ensemble.edits]
    rows = "\n".join(f"| {' | '.join(map(plain, row))} |" for row in cells)
    return _CARD.format(
        no_accuracy=NO_ACCURACY,
        made="".join(f"\n- {plain(said[:1].upper() + said[1:])}." for said in sentences) + ("\n" if sentences else ""),
        **claim,
        neighbours=_RELATIONS[certificate["relation"]].format(unit=claim["unit"]),
        but="" if float(certificate["delta"]) == 0 else f", but for a probability of at most {claim['delta']}",
        dataset=plain(certificate.get("dataset", "private data")),
        learner=f" by the learner {plain(certificate['learner'])}" if "learner" in certificate else "",
        form=ensemble.noun,
        parts=ensemble.parts,
        target=plain(ensemble.target),
        answers=_answers(ensemble),
        decides=ensemble.card_section(),
        edits=_EDITED.format(rows=rows) if rows else "",
        inputs="\n".join(f"| {plain(f.name)} | {f.kind} | {plain(_values(f))} |" for f in ensemble.features),
    )


def _answers(ensemble: Carded) -> str:
    if ensemble.target_range is not None:
        low, high = map(number_text, ensemble.target_range)
        return f"how much {plain(ensemble.target)} is, a number from {low} to {high}"
    *others, last = (f'"{plain(label)}"' for label in ensemble.classes)
    return f"whether {plain(ensemble.target)} is {', '.join(others)} or {last}, with a probability for each"


def _values(feature: Feature) -> str:
    if isinstance(feature, BooleanFeature):
        return "true, false"
    if isinstance(feature, CategoricalFeature):
        rest = len(feature.values) - LISTED
        return ", ".join(feature.values[:LISTED]) + (f" and {rest} more" if rest > 0 else "")
    if not feature.edges:
        return f"any {feature.noun}"
    low, high = feature.text(feature.edges[0]), feature.text(feature.edges[-1])
    return f"{feature.noun}s, told apart at {len(feature.edges)} cut points from {low} to {high}"
