"""The released voting ensemble: weighted 1-rules over public features. It never sees a row of the training data.

score(x) = sum over votes of weight * (+1 if the vote's test holds on x else -1)

Two classes have one score; K > 2 have one each, and a vote moves the score of its `output` alone.
`models.parts.answers` says what scores mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Self

import numpy as np

from dpserve_verify.errors import ModelInvalid
from models.explain.explain import Row, spoken_for
from models.explain.markdown import plain
from models.explain.vega_parts import signed_text
from models.features.features import Feature
from models.forms.ensemble import SumEnsemble, Summary
from models.parts.answers import ClassLabel, Scores, check_head, head_from_json, outputs_of
from models.parts.votes import Test, Vote, describe, every_test

LISTED = 1000  # lines of votes on a card

CARD_OF_TWO = """\
Each line votes for "{second}" where its test holds, and as much against where it does not. The votes are added up:
above zero the answer is "{second}", otherwise "{first}". The probability of
"{second}" is 1 / (1 + exp(-{link} × votes)).

| votes | test |
|---:|---|
{votes}"""

CARD_OF_MANY = """\
Each line votes for its class where its test holds, and as much against where it does not. The votes are added up, class
by class: the answer is the class with the most, the first of equals. The probability of a class is its share of
exp({link} × votes).

| votes | class | test |
|---:|---|---|
{votes}"""

PAGE = """<h2>The votes</h2>
<p>{rule}</p>
<table>
<tr>{head}</tr>
{rows}
</table>"""

RULE_OF_TWO = """Each line votes for {second} where its test holds, and as much against where it does not.
Above zero in all, the answer is {second}, otherwise {first}."""

RULE_OF_MANY = """Each line votes for its class where its test holds, and as much against where it does not.
The answer is the class with the most votes."""


@dataclass(frozen=True)
class VotingEnsemble(SumEnsemble):
    """A frozen, additive classifier of two classes or more. Scores are exact integers."""

    word = "voting"
    noun = "A voting ensemble"
    parts = "Votes"
    nothing = "Without a vote"
    in_votes = True

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    votes: tuple[Vote, ...]
    link: float

    def __post_init__(self) -> None:
        check_head(self.features, self.classes, self.link)
        if any(not 0 <= vote.output < self.outputs for vote in self.votes):
            raise ModelInvalid(f"vote.output: there are {self.outputs} outputs")

    def tables(self) -> tuple[list[Scores], Scores]:
        """Sum the votes per feature and code, (bins, outputs) each, and those that always hold as the constant,
        (outputs,)."""
        tables = [np.zeros((feature.bins, self.outputs), dtype=np.int64) for feature in self.features]
        constant = np.zeros(self.outputs, dtype=np.int64)
        for vote in self._merge_votes():
            if vote.test == "always":
                constant[vote.output] += vote.weight
            else:
                tables[vote.feature][:, vote.output] += vote.table(self.features[vote.feature].bins)
        return tables, constant

    def _merge_votes(self) -> list[Vote]:
        """Return every test that is voted on, once, with the sum of its votes: of thousands there are often few."""
        totals: dict[tuple[Test, int, int, int], int] = defaultdict(int)
        for vote in self.votes:
            where = (vote.feature, vote.code) if vote.test != "always" else (0, 0)
            totals[(vote.test, *where, vote.output)] += vote.weight
        return [Vote(test, feature, code, weight, output) for (test, feature, code, output), weight in totals.items()]

    @property
    def largest(self) -> int:
        """Return the size that no score can exceed: all votes together."""
        return sum(abs(vote.weight) for vote in self.votes)

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """Return a model in which every vote has a test of its own, as far as there are tests."""
        tests_of_votes = zip(self.votes, every_test(features), strict=False)
        votes = (Vote(*test, vote.weight, at % self.outputs) for at, (vote, test) in enumerate(tests_of_votes))
        return replace(self, features=features, votes=tuple(votes))

    def numbers(self) -> dict[str, Any]:
        """Return the votes, each as [test, feature, code, weight], and its output where there are several."""
        width = 5 if self.outputs > 1 else 4
        votes = [[vote.test, vote.feature, vote.code, vote.weight, vote.output][:width] for vote in self.votes]
        return {"votes": votes}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""
        features, target, classes, link = head_from_json(body, {"votes"})
        length = 4 if outputs_of(classes) == 1 else 5
        votes = body["votes"]
        if type(votes) is not list or any(type(vote) is not list or len(vote) != length for vote in votes):
            raise ModelInvalid(f"votes: lists of {length} values each, as there are {len(classes)} classes")
        return cls(features, target, classes, tuple(_vote(features, *vote) for vote in votes), link)

    def vote_table(self) -> list[Row]:
        """Return the votes, the heaviest first (Table 4 of the LazyBB paper); votes on the same test are added up, and
        those that cancel out are left out."""
        labels, features = spoken_for(self), self.features
        heavy = [vote for vote in self._merge_votes() if vote.weight]
        heavy.sort(key=lambda vote: (-abs(vote.weight), vote.feature, vote.code, vote.output))
        return [
            Row(
                vote.weight,
                "" if vote.test == "always" else features[vote.feature].name,
                describe(vote, features),
                labels[vote.output],
            )
            for vote in heavy
        ]

    def card_section(self) -> str:
        """Return what votes do, and their table."""
        first, second = map(plain, self.classes[:2])
        table, several = self.vote_table(), self.outputs > 1
        lines = [
            f"| {row.votes:+d} |{f' {plain(row.label)} |' if several else ''} {plain(row.test)} |"
            for row in table[:LISTED]
        ]
        rest = [f"\nand {len(table) - LISTED} more, which stand in ensemble.json"] if len(table) > LISTED else []
        words = {"link": f"{self.link:g}", "votes": "\n".join([*lines, *rest])}
        return CARD_OF_MANY.format(**words) if several else CARD_OF_TWO.format(**words, first=first, second=second)

    def summary(self) -> Summary:
        """Return the vote table; each line names its class, where every class has votes of its own."""
        table, several = self.vote_table(), self.outputs > 1
        features = [{"feature": name, "importance": size} for name, size in self.importances().items()]
        votes = [
            {"votes": row.votes, "feature": row.feature, "test": row.test} | ({"class": row.label} if several else {})
            for row in table
        ]
        head = ("VOTES", "FOR", "WHERE") if several else ("VOTES", f"FOR {self.classes[-1]} WHERE")
        rows = [(f"{row.votes:+d}", *([str(row.label)] if several else []), row.test) for row in table]
        return {"votes": votes, "features": features}, [head, *rows]

    def drawing_words(self) -> tuple[str, str]:
        """Return what votes for what."""
        if self.outputs > 1:
            legend = "A curve above zero votes for its class, one below against it. Same scale in every panel."
            return f"What votes for which {self.target}", legend
        against, second = self.classes
        legend = f"Above zero: votes for “{second}”. Below zero: votes for “{against}”. Same scale in every panel."
        return f"What votes for {self.target} “{second}”", legend

    def account(self) -> str:
        """Return the vote table in HTML."""
        first, second = (escape(str(label)) for label in self.classes[:2])
        several = self.outputs > 1
        lines = [
            (signed_text(row.votes), *([str(row.label)] if several else []), row.test) for row in self.vote_table()
        ]
        return PAGE.format(
            rule=RULE_OF_MANY if several else RULE_OF_TWO.format(first=first, second=second),
            head=_cells("th", ("votes", "class", "test") if several else ("votes", "test")),
            rows="\n".join(f"<tr>{_cells('td', line)}</tr>" for line in lines),
        )


def _cells(tag: str, texts: tuple[str, ...]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _vote(features: tuple[Feature, ...], test: Test, feature: int, code: int, weight: int, output: int = 0) -> Vote:
    if {type(feature), type(code), type(weight), type(output)} != {int}:
        raise ModelInvalid(f"vote={[test, feature, code, weight, output]}: all but the test are integers")
    vote = Vote(test, feature, code, weight, output)
    if test == "always":
        return vote
    if not 0 <= vote.feature < len(features):
        raise ModelInvalid(f"vote.feature={feature}: there are {len(features)} features")
    owner = features[vote.feature]
    limit = {"above": owner.cuts, "is": owner.bins}.get(test, 0)
    if not 0 <= vote.code < limit:
        raise ModelInvalid(f"vote {test} {code}: {owner.name} has {limit} such tests")
    return vote
