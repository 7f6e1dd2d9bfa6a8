"""Everything that a home holds, in one table: what a copy of it must keep, what is made again, what is never copied."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """What a backup does with a path. `KEEP`: copied as of the ledger's snapshot. `ENTERED`: never changes
    once it is in its place, so it is copied after that, where the ledger's snapshot has its entry. `REBUILD`: made
    again from the rest. `NEVER`: of this machine and this moment.
    """

    KEEP = "keep"
    ENTERED = "keep what is entered"
    REBUILD = "rebuild"
    NEVER = "never"


@dataclass(frozen=True)
class Place:
    """A path in a home: `*` stands for any name or part of one, `**` for anything below."""

    pattern: str
    kind: Kind
    what: str


LEDGER, KEYS, MARK = "ledger.db", "keys", "keys/high-water.json"
# The first that matches decides.
PLACES = (
    Place("**.lock", Kind.NEVER, "locks"),
    Place("**.partial", Kind.NEVER, "files that are being written"),
    Place("ledger.db", Kind.KEEP, "the ledger, in SQLite; a backup holds it so whatever the database"),
    Place("ledger.db-*", Kind.NEVER, "SQLite's own log of writes"),
    Place("ledger-*.db", Kind.NEVER, "the ledger as it was before `dpserve migrate`"),
    Place("keys/newest.bin", Kind.REBUILD, "a cache of the ledger"),
    Place("keys/spenders.bin", Kind.REBUILD, "a cache of the ledger"),
    Place("keys/judge.db", Kind.REBUILD, "a cache of the ledger"),
    Place("keys/judge.db-journal", Kind.REBUILD, "a cache of the ledger"),
    Place("keys/*", Kind.KEEP, "signing keys, the commitment key, the high-water mark"),
    Place("keys.*/**", Kind.NEVER, "keys that were being made"),
    Place("trust.json", Kind.REBUILD, "public keys and origin, for auditors"),
    Place("witnessed", Kind.KEEP, "the newest checkpoint that witnesses cosigned"),
    Place("backed-up.json", Kind.NEVER, "when the newest good backup was made"),
    Place("first-token", Kind.NEVER, "the admin token of the first start, until it is taken from there"),
    Place("signed-out.json", Kind.NEVER, "who signed out at their provider, for an hour at most"),
    Place("schemas/*", Kind.KEEP, "copies of the datasets' schemas, for servers without rows"),
    Place("datasets/**.partial/**", Kind.NEVER, "rows that are being packed"),
    Place("datasets/*.fetched/**", Kind.NEVER, "pieces of a remote source that is being fetched"),
    Place("datasets/*/*", Kind.ENTERED, "packed rows and their schema, by commitment"),
    Place("datasets.json", Kind.KEEP, "where the steward's files came from"),
    Place("notes.json", Kind.KEEP, "notes and tags of datasets and models, for people"),
    Place("models/*/.bundle-*/*", Kind.NEVER, "bundles that are being written"),
    Place("models/*/champion", Kind.KEEP, "which version the name alone means"),
    Place("models/*/deciding", Kind.KEEP, "a decision that is being carried out"),
    Place("models/*/*.retired", Kind.KEEP, "versions that are not served"),
    Place("models/*/*/*", Kind.ENTERED, "released bundles"),
    Place("learners/*/*", Kind.KEEP, "learners of others that were admitted: text and signed report, by digest"),
    Place("starts/*", Kind.KEEP, "public models that boosting began from, by digest"),
    Place("evaluations/*/*", Kind.ENTERED, "statements of what a model is worth; each was paid for and is drawn once"),
    Place("profiles/*/*", Kind.ENTERED, "profiles of datasets; each was paid for and is drawn once"),
    Place("attacks/*/*", Kind.ENTERED, "statements of what an attack on a model shows; each is made once"),
    Place("campaigns/*/*.db", Kind.KEEP, "what owners reported, each once, and institutions of each round"),
    Place("campaigns/*/*.db-*", Kind.NEVER, "SQLite's own log of writes"),
    Place("campaigns/**", Kind.KEEP, "what owners were asked"),
    Place("jobs/*/answers", Kind.NEVER, "answers of a running job, which only its machine may go on with"),
    Place("jobs/.*.gone/*", Kind.NEVER, "jobs that are finished"),
    Place("jobs/**", Kind.KEEP, "what is released and not in its place yet"),
    Place("drafts/**", Kind.NEVER, "files that stewards brought and have not registered yet"),
    Place("export-*/**", Kind.NEVER, "a ledger that is being downloaded"),
    Place("run/**", Kind.NEVER, "sockets, counts and the first link of a running server"),
    Place("logs/**", Kind.NEVER, "the trail of requests, and the last audit: this machine's own"),
)
_FORMS = {"**": ".*", "*": "[^/]*"}


_PARTS = {place: re.split(r"(\*\*?)", place.pattern) for place in PLACES}
_PATTERNS = tuple(
    (re.compile("".join(_FORMS.get(part) or re.escape(part) for part in parts)), place)
    for place, parts in _PARTS.items()
)


def place_of(path: str) -> Place | None:
    """Return what the table says of a file, by its path in the home; None where it has no line for it."""
    return next((place for pattern, place in _PATTERNS if pattern.fullmatch(path)), None)


def files_in(home: Path) -> Iterator[str]:
    """Yield the path of every file of a home, in order; folders that are elsewhere, behind a link, as well."""
    for folder, folders, names in os.walk(home, followlinks=True):
        folders.sort()
        for name in sorted(names):
            yield Path(folder, name).relative_to(home).as_posix()
