"""What a campaign asks of every owner, the same of all: signed by the issuer, its digest in the log before an answer.

Nothing in it can make a report cost more than its epsilon: the law of the report is `accountant.one_of_k`'s, whatever
vectors and coordinates are. The rest decides what the report is good for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

from accountant import canonical
from accountant.budget import check_name
from accountant.canonical import JSON, exact_integer, exact_object, exact_text, parse_decimal
from accountant.errors import CertificateInvalid, InputError
from accountant.one_of_k import OneOfK
from accountant.privacy.events import Plan, Release
from models.features import Feature, feature_from_json
from training.local.coordinates import Coordinates, coordinates_from_json

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
DEFINITION_TYPE = "https://dpserve/campaign/v1"
LIMIT = 1 << 19
MOST_OWNERS = 10**7
PURPOSE = "one report of one owner"
LEARNERS = ("local-linear", "local-lr")
_TEXTS = ("campaign", "population", "model", "learner", "epsilon", "target", "features", "seed", "public_rows")
_COUNTS = ("owners", "least", "candidates", "favoured")
_FIELDS = (*_TEXTS, *_COUNTS, "classes", "coordinates")


@dataclass(frozen=True)
class Definition:
    """A campaign. `owners`: how many may answer, numbered from 0; `least`: below so many reports nothing is learnt;
    `seed`: public, 32 bytes in hex; `public_rows`: sha256 of the unlabelled rows that the coordinates came from.
    """

    campaign: str
    population: str
    model: str
    learner: str
    epsilon: Decimal
    owners: int
    least: int
    target: str
    classes: tuple[str, ...]
    features: tuple[Feature, ...]
    coordinates: Coordinates
    public_rows: str
    seed: str
    candidates: int
    favoured: int

    def __post_init__(self) -> None:
        check_name("campaign", self.campaign)
        check_name("model", self.model)
        if self.learner not in LEARNERS:
            raise InputError(f"learner={self.learner!r:.60}: must be one of {', '.join(LEARNERS)}")
        if not 1 <= self.least <= self.owners <= MOST_OWNERS:
            raise InputError(f"least={self.least}: must be from 1 to the {self.owners} owners, at most {MOST_OWNERS}")
        if len(self.classes) != 2 or len(set(self.classes)) != 2:
            raise InputError(f"classes={list(self.classes)}: {self.learner} tells two classes apart")
        for name in ("seed", "public_rows"):
            if not re.fullmatch(r"[0-9a-f]{64}", getattr(self, name)):
                raise InputError(f"{name}: must be 64 hexadecimal digits")
        self.mechanism.event  # noqa: B018  # its parameters are checked as it is made

    @property
    def mechanism(self) -> OneOfK:
        """What every owner draws by: its price and its law."""
        return OneOfK(self.epsilon, self.candidates, self.favoured)

    @property
    def dimension(self) -> int:
        """Of an owner's own vector: one number for each coordinate, and one for the label alone."""
        return self.coordinates.size + 1

    @property
    def plan(self) -> Plan:
        """What is charged: one report, for an owner answers once."""
        mechanism = self.mechanism
        return Plan.of([Release(PURPOSE, mechanism.name, mechanism.norm, 1, mechanism.event)])

    @cached_property
    def payload(self) -> bytes:
        """The statement that is signed: canonical JSON."""
        body: dict[str, Any] = {name: getattr(self, name) for name in (*_TEXTS, *_COUNTS)}
        body |= {
            "epsilon": canonical.decimal_string(self.epsilon),
            "features": json.dumps([feature.to_json() for feature in self.features]),
            "classes": list(self.classes),
            "coordinates": self.coordinates.to_json(),
        }
        digest = hashlib.sha256(canonical.encode(body, LIMIT)).hexdigest()
        subject = [{"name": self.campaign, "digest": {"sha256": digest}}]
        head: dict[str, Any] = {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": DEFINITION_TYPE}
        return canonical.encode({**head, "predicate": body}, LIMIT)

    @property
    def digest(self) -> str:
        """sha256 of `payload` in hex: what the ledger's entries and the certificate name."""
        return hashlib.sha256(self.payload).hexdigest()

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """What the reservation, and so the certificate, says of it."""
        return {
            "campaign": self.campaign,
            "definition": self.digest,
            "public_rows": self.public_rows,
            "owners": self.owners,
            "least": self.least,
            "directions": self.coordinates.size,
            "candidates": self.candidates,
            "favoured": self.favoured,
        }


@lru_cache(maxsize=16)
def definition_from_payload(payload: bytes) -> Definition:
    """Inverse of `Definition.payload`, strict. CertificateInvalid names the first thing wrong."""
    try:
        top = exact_object(
            canonical.decode_canonical(payload, LIMIT), ("_type", "subject", "predicateType", "predicate"), "statement"
        )
        if (top["_type"], top["predicateType"]) != (STATEMENT_TYPE, DEFINITION_TYPE):
            raise InputError(f"predicateType={top['predicateType']!r:.80}: must be {DEFINITION_TYPE}")
        found = _read(exact_object(top["predicate"], _FIELDS, "campaign"))
    except (InputError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise CertificateInvalid(f"campaign: not a definition ({error!s:.200})") from error
    if found.payload != payload:
        raise CertificateInvalid("campaign: not in the one spelling of its definition")
    return found


def _read(body: Mapping[str, JSON]) -> Definition:
    texts: dict[str, Any] = {name: exact_text(body[name], name) for name in _TEXTS}
    counts: dict[str, Any] = {name: exact_integer(body[name], name) for name in _COUNTS}
    classes = body["classes"]
    if not isinstance(classes, list):
        raise InputError("classes: must be a list")
    features = tuple(feature_from_json(each) for each in json.loads(texts.pop("features")))
    epsilon = parse_decimal(texts.pop("epsilon"))
    return Definition(
        **texts,
        **counts,
        epsilon=epsilon,
        features=features,
        classes=tuple(exact_text(label, "class") for label in classes),
        coordinates=coordinates_from_json(features, body["coordinates"]),
    )


def with_seed(definition: Definition, seed: str) -> Definition:
    """The same with another seed: what the operating system gave when the campaign was opened."""
    return replace(definition, seed=seed)
