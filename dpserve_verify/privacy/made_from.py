"""What a release was made from, and what it comes to together with that: the one sum (docs/privacy/outside.md).

A release that was computed from another one holds what that held. So a statement names every release that went into it,
with its price; whoever says how much one who has the release learns of one unit asks `sum_of`, and whoever charges it
elsewhere adds up `events_of`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.events import Event, event_from_json, event_to_json

HOLDOUT = "holdout"  # the part of a family whose units are kept aside
MODEL, PROFILE = "model", "profile"  # kinds of releases that others are made from
SCHEMA, START = "schema", "start"  # what brought it in: the dataset's refined schema, or what boosting began from
MOST = 64  # releases that one may be made from

Name = tuple[str, int]
"""By which a release is known, whatever statements there are of it: the ledger, and the job that it reserved."""
Events = tuple[tuple[Event, int], ...]

SUM = "the sums of the epsilons and of the deltas of this claim and of the releases that it was made from, each once"
PARTS = "; rows kept aside and the others are different units, so the larger of their two sums holds"


@dataclass(frozen=True)
class Source:
    """A release that went into another one.

    Attributes:
        ledger, reservation: the log, and the job there; together the release's name.
        entry: the index of the entry that binds its statement, whose sha256 is `statement`.
        kind: MODEL or PROFILE (of which synthetic rows are drawn, too).
        through: SCHEMA or START.
        dataset, families, part: whose rows it read.
        epsilon, delta: what it claims by itself.
        events: the prices of its own releases, of equal ones how many.
        same_people: whether it read people of the families of what was made from it.
    """

    ledger: str
    reservation: int
    entry: int
    statement: str
    kind: str
    through: str
    dataset: str
    families: tuple[str, ...]
    part: str
    epsilon: Decimal
    delta: Decimal
    events: Events
    same_people: bool

    @property
    def name(self) -> Name:
        """Return what it is known by: an edited model and its ancestor are one release."""
        return self.ledger, self.reservation

    @property
    def words(self) -> str:
        """Name it in a sentence, with its price."""
        people = "the same people" if self.same_people else "other people"
        return (
            f"the {self.kind} of entry {self.entry}, {self.part} rows of dataset {self.dataset}, {people}, epsilon "
            f"{decimal_string(self.epsilon)} at delta {decimal_string(self.delta)}"
        )

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Source:
        """Read what `to_json` wrote. InputError where a price has no form."""
        return cls(
            line["ledger"], line["reservation"], line["entry"], line["statement"], line["kind"], line["through"],
            line["dataset"], tuple(line["families"]), line["part"], parse_decimal(line["epsilon"]),
            parse_decimal(line["delta"]),
            tuple((event_from_json(run["event"]), run["count"]) for run in line["events"]),
            line["samePeople"],
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Spell it as statements do."""
        return {
            "ledger": self.ledger,
            "reservation": self.reservation,
            "entry": self.entry,
            "statement": self.statement,
            "kind": self.kind,
            "through": self.through,
            "dataset": self.dataset,
            "families": list(self.families),
            "part": self.part,
            "epsilon": decimal_string(self.epsilon),
            "delta": decimal_string(self.delta),
            "events": [{"event": event_to_json(event), "count": count} for event, count in self.events],
            "samePeople": self.same_people,
        }


def merge_events(plan: Sequence[Mapping[str, Any]]) -> Events:
    """Return the prices of a plan as entries and statements list it, equal ones put together in order of the first."""
    counts: dict[Event, int] = {}
    for run in plan:
        event = event_from_json(run["event"])
        counts[event] = counts.get(event, 0) + run["count"]
    return tuple(counts.items())


@dataclass(frozen=True)
class Apart:
    """What other people have lost by the same release: of these datasets, whose families share people."""

    datasets: tuple[str, ...]
    epsilon: Decimal
    delta: Decimal


@dataclass(frozen=True)
class Sum:
    """What one who has a release has of one unit. `same`: of the people of its own dataset, epsilon and delta, where it
    was made from releases about them, else None; `words`: how they add up; `apart`: of others, group by group.
    """

    same: tuple[Decimal, Decimal] | None
    words: str
    apart: tuple[Apart, ...]


def sum_of(epsilon: Decimal, delta: Decimal, part: str, sources: Iterable[Source]) -> Sum:
    """Add up a release's own claim on `part` of its rows and those of the releases that it was made from.

    Claims on the same people add up, epsilons and deltas, each release once however many statements there are of it.
    Rows kept aside and the others hold different units, and adding one unit moves one part alone: the larger sum holds.
    People of other families are stated apart, those of families that share a release together.
    """
    once = list({source.name: source for source in sources}.values())
    same = [source for source in once if source.same_people]
    claims = [(source.part, source.epsilon, source.delta) for source in same]
    own = _add([(part, epsilon, delta), *claims]) if same else None
    other_part = any((source.part == HOLDOUT) != (part == HOLDOUT) for source in same)
    others = tuple(
        Apart(
            tuple(sorted({source.dataset for source in group})),
            *_add([(source.part, source.epsilon, source.delta) for source in group]),
        )
        for group in _groups([source for source in once if not source.same_people])
    )
    return Sum(own, SUM + PARTS * other_part, others)


def _add(claims: Iterable[tuple[str, Decimal, Decimal]]) -> tuple[Decimal, Decimal]:
    """Return the larger of the sums of both parts."""
    sums = {True: [Decimal(0), Decimal(0)], False: [Decimal(0), Decimal(0)]}
    for part, epsilon, delta in claims:
        aside = sums[part == HOLDOUT]
        aside[0], aside[1] = aside[0] + epsilon, aside[1] + delta
    return max(sums[True][0], sums[False][0]), max(sums[True][1], sums[False][1])


def _groups(sources: Sequence[Source]) -> list[list[Source]]:
    """Put together what shares a family, at first or second hand."""
    groups: list[tuple[set[str], list[Source]]] = []
    for source in sources:
        families, members = set(source.families), [source]
        apart = [group for group in groups if families.isdisjoint(group[0])]
        for known, others in (group for group in groups if not families.isdisjoint(group[0])):
            families, members = families | known, [*others, *members]
        groups = [*apart, (families, members)]
    return [members for _, members in groups]


def events_of(own: Events, sources: Iterable[Source], charged: Collection[Name] = ()) -> tuple[Events, list[Name]]:
    """Return what is to be charged for a release beside what was charged before: its own prices, and those of each
    release of the same people that it was made from; and which these releases are.
    """
    missing = {source.name: source for source in sources if source.same_people and source.name not in charged}
    inside = [pair for source in missing.values() for pair in source.events]
    return (*own, *inside), list(missing)
