"""The model card: one page of Markdown that travels with a model. It holds released and public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accountant.errors import InputError
from models.answers import ClassLabel
from models.ensemble import Ensemble
from models.explain import importances, vote_table
from models.features import BooleanFeature, CategoricalFeature, Feature, number_text
from models.trees import TreeEnsemble

LISTED = 12  # categories named before the rest is counted
VOTES = 1000  # lines of votes

_RELATIONS = {
    "add-remove": "whether or not {unit} is in the data",
    "replace-one": "whatever {unit} says (how many there are is public)",
}

_CARD = """\
# Model card: {target}, learnt from {dataset} under differential privacy

{form}{learner} that answers whether {target} is {classes}, with a probability for each. It is
meant for records of the shape listed below, from the population that the dataset was drawn from. It is exported as ONNX
and reads raw records.

## What is promised

**({epsilon}, {delta})-differential privacy**, neighbours by {relation}, unit of privacy: {unit}.

In plain words: {neighbours}, the chance of any given model
to come out changes by a factor of at most e^{epsilon}{but}.
This holds against anyone who sees the model, whatever else they know, and for ever. The certificate beside this card
binds the claim to the model's exact bytes. Verify the certificate; this page only explains it.

## What is not promised

- **Not that the model is right.** This card states no accuracy: measured on private records, that would cost budget.
- **Not fairness, and not causes.** {parts} are associations in the training data, noise included.
- **Not secrecy of what is true of many.** The model may reveal what a group has in common; it hardly reveals whether
  a given one was in the data.
- **Not what else was published** about the same people, by others or outside this ledger: privacy losses add up.
- **Not the inputs of a prediction.** Whoever runs the model sees the records sent to it.

## How it decides

{decides}

## Inputs

A record carries every feature; a value that is not known is null. Texts that are not listed count as "other", and
missing values have a place of their own.

| feature | type | values |
|---|---|---|
{inputs}
"""

_TWO = """\
Each line votes for "{second}" where its test holds, and as much against where it does not. The votes are added up:
above zero the answer is "{second}", otherwise "{first}". The probability of
"{second}" is 1 / (1 + exp(-{link} × votes)).

| votes | test |
|---:|---|
{votes}"""

_MANY = """\
Each line votes for its class where its test holds, and as much against where it does not. The votes are added up, class
by class: the answer is the class with the most, the first of equals. The probability of a class is its share of
exp({link} × votes).

| votes | class | test |
|---:|---|---|
{votes}"""

_TREES = """\
Each of {count} trees asks a record some questions and adds a number to its score, which starts at {constant}. Above
zero the answer is "{second}", otherwise "{first}". The probability of "{second}" is
1 / (1 + exp(-{link} × score)). All numbers stand in ensemble.json.

How far the questions about a feature move the score, if every other answer were a fair coin:

| score | feature |
|---:|---|
{votes}"""


def model_card(ensemble: Ensemble, certificate: Mapping[str, Any]) -> str:
    """Markdown. Of `certificate` only these are read, so that nothing unpaid can slip in: `epsilon`, `delta` (decimal
    texts), `relation` ("add-remove" or "replace-one"), `unit` (what one unit of privacy is: "one record", "one person")
    and, where present, `dataset` and `learner`. Raises InputError when one of the four is missing or unknown."""
    absent = [key for key in ("epsilon", "delta", "relation", "unit") if key not in certificate]
    if absent:
        raise InputError(f"certificate: missing {absent}")
    if certificate["relation"] not in _RELATIONS:
        raise InputError(f"relation={certificate['relation']!r}: must be one of {sorted(_RELATIONS)}")
    claim = {key: _plain(certificate[key]) for key in ("epsilon", "delta", "relation", "unit")}
    trees = isinstance(ensemble, TreeEnsemble)
    return _CARD.format(
        **claim,
        neighbours=_RELATIONS[certificate["relation"]].format(unit=claim["unit"]),
        but="" if float(certificate["delta"]) == 0 else f", but for a probability of at most {claim['delta']}",
        dataset=_plain(certificate.get("dataset", "private data")),
        learner=f" by the learner {_plain(certificate['learner'])}" if "learner" in certificate else "",
        form="A sum of decision trees" if trees else "A voting ensemble",
        parts="Trees" if trees else "Votes",
        target=_plain(ensemble.target),
        classes=_either(ensemble.classes),
        decides=_decides(ensemble),
        inputs="\n".join(f"| {_plain(f.name)} | {f.kind} | {_plain(_values(f))} |" for f in ensemble.features),
    )


def _either(classes: Sequence[ClassLabel]) -> str:
    *others, last = (f'"{_plain(label)}"' for label in classes)
    return f"{', '.join(others)} or {last}"


def _decides(ensemble: Ensemble) -> str:
    first, second = map(_plain, ensemble.classes[:2])
    link = f"{ensemble.link:g}"
    if isinstance(ensemble, TreeEnsemble):
        lines = [f"| {size:.4g} | {_plain(name)} |" for name, size in importances(ensemble).items()]
        words = {"count": len(ensemble.trees), "constant": ensemble.constant}
        return _TREES.format(**words, first=first, second=second, link=link, votes="\n".join(lines))
    table = vote_table(ensemble)
    more = [f"\nand {len(table) - VOTES} more, which stand in ensemble.json"] if len(table) > VOTES else []
    if ensemble.outputs == 1:
        lines = [f"| {row.votes:+d} | {_plain(row.test)} |" for row in table[:VOTES]]
        return _TWO.format(first=first, second=second, link=link, votes="\n".join([*lines, *more]))
    lines = [f"| {row.votes:+d} | {_plain(row.label)} | {_plain(row.test)} |" for row in table[:VOTES]]
    return _MANY.format(link=link, votes="\n".join([*lines, *more]))


def _values(feature: Feature) -> str:
    if isinstance(feature, BooleanFeature):
        return "true, false"
    if isinstance(feature, CategoricalFeature):
        more = len(feature.values) - LISTED
        return ", ".join(feature.values[:LISTED]) + (f" and {more} more" if more > 0 else "")
    if not feature.edges:
        return "any number"
    low, high = number_text(feature.edges[0]), number_text(feature.edges[-1])
    return f"numbers, told apart at {len(feature.edges)} cut points from {low} to {high}"


def _plain(value: object) -> str:
    """Text that stays text in Markdown, in its tables, and in HTML made from it."""
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for character in "\\|`*_[]#":
        text = text.replace(character, "\\" + character)
    return text
