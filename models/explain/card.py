"""The model card: one page of Markdown that travels with a model. It holds released and public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accountant.errors import InputError
from models.additive import AdditiveEnsemble, middle
from models.answers import ClassLabel
from models.ensemble import Ensemble, VotingEnsemble, target_range
from models.explain.explain import importances, vote_table
from models.features import BooleanFeature, CategoricalFeature, Feature, number_text
from models.trees import TreeEnsemble

LISTED = 12  # categories named before the rest is counted
VOTES = 1000  # lines of votes

_RELATIONS = {
    "add-remove": "whether or not {unit} is in the data",
    "replace-one": "whatever {unit} says (how many there are is public)",
}

_FORMS = {  # and what its parts are called
    VotingEnsemble: ("A voting ensemble", "Votes"),
    TreeEnsemble: ("A sum of decision trees", "Trees"),
    AdditiveEnsemble: ("An additive model", "Terms"),
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
{edits}
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

_TERMS = """\
Each feature adds a number to the score, which starts at {constant}: which one, its value alone says. Above zero the
answer is "{second}", otherwise "{first}". The probability of "{second}" is
1 / (1 + exp(-{link} × score)). All numbers stand in ensemble.json.{errors}

How much each feature adds to the log odds of "{second}", or takes away, {how}:

| log odds | feature |
|---:|---|
{votes}"""

_NUMBER = """\
Each feature adds a number to the score, which starts at {constant}: which one, its value alone says. The answer is
{middle} + {link} × score. All numbers stand in ensemble.json.{errors}

**Within {low} to {high}.** In training, targets outside this public range were taken for its nearer end, and no answer
leaves the range.

How much each feature adds to the answer, or takes away, {how}:

| {target} | feature |
|---:|---|
{votes}"""

_ERRORS = """ So does the standard error that the noise of
differential privacy gives each of them; how sure it is of the people behind the data, that does not say."""

_EDITED = """
## What people changed

After the release, people changed what some features add. A change is made on released numbers alone: it costs no
privacy, and the promise above holds as it stands.

| when | who | feature | what | why |
|---|---|---|---|---|
{rows}
"""

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
    form, parts = _FORMS[type(ensemble)]
    return _CARD.format(
        **claim,
        neighbours=_RELATIONS[certificate["relation"]].format(unit=claim["unit"]),
        but="" if float(certificate["delta"]) == 0 else f", but for a probability of at most {claim['delta']}",
        dataset=_plain(certificate.get("dataset", "private data")),
        learner=f" by the learner {_plain(certificate['learner'])}" if "learner" in certificate else "",
        form=form,
        parts=parts,
        target=_plain(ensemble.target),
        answers=_answers(ensemble),
        decides=_decides(ensemble),
        edits=_edits(ensemble),
        inputs="\n".join(f"| {_plain(f.name)} | {f.kind} | {_plain(_values(f))} |" for f in ensemble.features),
    )


def _answers(ensemble: Ensemble) -> str:
    found = target_range(ensemble)
    if found is not None:
        low, high = map(number_text, found)
        return f"how much {_plain(ensemble.target)} is, a number from {low} to {high}"
    return f"whether {_plain(ensemble.target)} is {_either(ensemble.classes)}, with a probability for each"


def _either(classes: Sequence[ClassLabel]) -> str:
    *others, last = (f'"{_plain(label)}"' for label in classes)
    return f"{', '.join(others)} or {last}"


def _decides(ensemble: Ensemble) -> str:
    if isinstance(ensemble, AdditiveEnsemble):
        return _terms(ensemble)
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


def _terms(ensemble: AdditiveEnsemble) -> str:
    words = {
        "constant": ensemble.constant,
        "link": f"{ensemble.link:g}",
        "errors": _ERRORS if ensemble.errors else "",
        "how": "on average over the released, noisy counts of records" if ensemble.counts else "at most",
        "votes": "\n".join(f"| {size:.4g} | {_plain(name)} |" for name, size in importances(ensemble).items()),
    }
    if ensemble.target_range is None:
        first, second = map(_plain, ensemble.classes)
        return _TERMS.format(**words, first=first, second=second)
    low, high = map(number_text, ensemble.target_range)
    centre = number_text(middle(ensemble.target_range))
    return _NUMBER.format(**words, middle=centre, low=low, high=high, target=_plain(ensemble.target))


def _edits(ensemble: Ensemble) -> str:
    """Nothing where nobody changed anything."""
    edits = ensemble.edits if isinstance(ensemble, AdditiveEnsemble) else ()
    cells = [(edit.at, edit.by, edit.feature, edit.what, edit.why) for edit in edits]
    rows = "\n".join(f"| {' | '.join(map(_plain, row))} |" for row in cells)
    return _EDITED.format(rows=rows) if rows else ""


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
