"""A campaign of two aggregators: every owner's statistic in two shares, and noise of both on the sums.

What an owner is promised rests on one of the two: its noise alone is as wide as the claim needs, and what the other
sees beside it is uniform. The sensitivity follows from the schema, by `local.reports.groups`, and nothing says it
otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from accountant.ledger.families.records import SHARED
from accountant.noise import shares
from accountant.privacy import gdp
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import exact_object, exact_text
from dpserve_verify.keys.trust import fingerprint
from dpserve_verify.keys.verifier_keys import ed25519_key
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import Gaussian, Plan, Release
from local.reports.corners import check_classes
from local.reports.groups import Groups
from local.reports.question import DECIMAL, INTEGER, Question, Spelled

SHARED_LEARNERS = ("shared-additive",)
AGGREGATORS = 2
MAX_BYTES = 1 << 20  # of one request, and of a signed statement: what the platform reads
ROOM = 1 << 12  # of that, for all but owners, shares and numbers
FINEST = Decimal("0.000001")  # of the noise multiplier
WIDEST = Decimal(10**6)
MAX_END = 1e300  # of a number's range: the difference of two ends is finite


@dataclass(frozen=True)
class Aggregator:
    """Public keys of one: X25519, which shares are sealed to, and Ed25519, which its answers are signed by; in hex."""

    name: str
    seal: str
    sign: str

    def __post_init__(self) -> None:
        for key in (self.seal, self.sign):
            if len(key) != 64 or not set(key) <= set("0123456789abcdef"):
                raise InputError(f"aggregator={self.name!r:.80}: keys must be 64 hexadecimal digits each")
        shares.check_key(bytes.fromhex(self.seal))
        ed25519_key(bytes.fromhex(self.sign), f"aggregator={self.name!r:.80}")
        if not self.name.isprintable() or not 1 <= len(self.name) <= 200:
            raise InputError("aggregator: the name must be one line of 1 to 200 characters")

    @cached_property
    def fingerprint(self) -> str:
        """Return the sha256 over both keys, in hex, by which owners name the aggregators they trust."""
        return hashlib.sha256(bytes.fromhex(self.seal + self.sign)).hexdigest()

    @cached_property
    def signers(self) -> dict[str, Ed25519PublicKey]:
        """Return the public key that verifies its answers, by its keyid, in the form that envelopes are verified by."""
        key = ed25519_key(bytes.fromhex(self.sign))
        return {fingerprint(key): key}

    def to_json(self) -> dict[str, str]:
        """Return the public keys as JSON. Inverse: `aggregator_from_json`."""
        return {"name": self.name, "seal": self.seal, "sign": self.sign}


def aggregator_from_json(body: Any) -> Aggregator:
    """Read what `Aggregator.to_json` wrote. InputError for anything else."""
    fields = exact_object(body, ("name", "seal", "sign"), "aggregator")
    return Aggregator(*(exact_text(fields[name], name) for name in ("name", "seal", "sign")))


ALLOWED = replace(DECIMAL, field="allowed")
BOTH = Spelled(
    lambda bodies, _: tuple(map(aggregator_from_json, bodies)), lambda both: [dict(each.to_json()) for each in both]
)


def _read_ends(value: Any, name: str) -> tuple[float, float] | None:
    """Read the range of a number; None of classes."""
    ends = json.loads(exact_text(value, name))
    if ends is not None and not (type(ends) is list and len(ends) == 2 and {*map(type, ends)} <= {int, float}):
        raise InputError("bounded: must be null, or the lower end and the higher one")
    return None if ends is None else (float(ends[0]), float(ends[1]))


class ForAggregators(Question):
    """A campaign whose answers two aggregators add up. `allowed`: the delta of all that is asked of one owner."""

    allowed: Decimal
    aggregators: tuple[Aggregator, ...]

    def check_sums(self) -> None:
        """Raise InputError unless there are two aggregators, each with keys of its own, and the plan, with the noise of
        one of them alone, costs no more than epsilon.
        """
        keys = {key for aggregator in self.aggregators for key in (aggregator.seal, aggregator.sign)}
        if len(self.aggregators) != AGGREGATORS or len(keys) != 2 * AGGREGATORS:
            raise InputError("aggregators: must be two, each with keys of its own")
        if not self.delta > 0:
            raise InputError(f"delta={self.delta}: must be above 0, for the noise is Gaussian")
        costs = gdp.epsilon_of(self.plan, self.delta)
        if costs is None or costs > self.epsilon:
            raise InputError(f"plan: costs {costs}, more than {self.epsilon}")

    @property
    def delta(self) -> Decimal:
        """Return the delta of all that is asked of one owner."""
        return self.allowed

    @property
    def fingerprints(self) -> dict[str, str]:
        """Return the aggregators' fingerprints, as the reservation, and so the certificate, names them."""
        return {f"aggregator_{at + 1}": aggregator.fingerprint for at, aggregator in enumerate(self.aggregators)}


@dataclass(frozen=True)
class SharedDefinition(ForAggregators):
    """`groups`: at most so many of each feature; `bounded`: of a number, its public range in place of classes;
    `noise_multiplier`: of the noise that EACH aggregator adds.
    """

    TYPE: ClassVar[str] = "https://dpserve/campaign/two-aggregators/v1"
    OWN: ClassVar[Mapping[str, Spelled]] = {
        "delta": ALLOWED, "groups": INTEGER, "noise_multiplier": DECIMAL, "bounded": Spelled(_read_ends, json.dumps),
        "aggregators": BOTH,
    }  # fmt: skip

    allowed: Decimal
    groups: int
    noise_multiplier: Decimal
    bounded: tuple[float, float] | None
    aggregators: tuple[Aggregator, ...]

    def __post_init__(self) -> None:
        self.check_learner(SHARED_LEARNERS)
        super().__post_init__()
        if self.bounded is None:
            check_classes(self.learner, self.classes)
        elif self.classes:
            raise InputError("classes, bounded: a target has one of them")
        if self.bounded is not None and not -MAX_END <= self.bounded[0] < self.bounded[1] <= MAX_END:
            raise InputError(f"bounded: must be the lower end and the higher one, finite, within {MAX_END:g}")
        self.check_sums()
        if self.largest > MAX_BYTES:  # nobody could answer it, and every owner would be charged for trying
            raise InputError(
                f"groups={self.groups}, owners={self.owners}: the largest answer would have {self.largest} bytes; at "
                f"most {MAX_BYTES}: ask for fewer groups, or fewer owners"
            )

    @cached_property
    def layout(self) -> Groups:
        """Return the public groups."""
        return Groups(self.features, self.groups, self.wide)

    @property
    def share_bytes(self) -> int:
        """Return how many bytes one sealed share has."""
        return 8 * self.layout.numbers + shares.OVERHEAD

    @property
    def largest(self) -> int:
        """Return how many bytes the largest message has, at most: an owner's two shares; or a sum with a bit for every
        owner, in base64 within a statement, in base64 within its envelope.
        """
        answer = (self.owners // 8 + 8 * self.layout.numbers) * 16 // 9
        return max(AGGREGATORS * self.share_bytes, answer) + ROOM

    @property
    def row_numbers(self) -> int:
        """Return how many numbers one row becomes: one for each group, which say what group each feature is in."""
        return self.layout.size

    @property
    def plan(self) -> Plan:
        """Return what is charged: one sum, with the noise of one aggregator alone."""
        return plan_of(self.layout, self.noise_multiplier)

    def about(self, owner: int, aggregator: int) -> bytes:
        """Return what a sealed share is bound to: it opens for this campaign, owner and aggregator alone."""
        return f"dpserve share {self.digest} {owner} {aggregator}".encode()

    @property
    def parameters(self) -> dict[str, str | int | bool | None]:
        """Return what the reservation, and so the certificate, says of the campaign."""
        return {**super().parameters, "groups": self.groups, "numbers": self.layout.numbers, **self.fingerprints}


def plan_of(layout: Groups, noise_multiplier: Decimal) -> Plan:
    """Plan one discrete Gaussian of this width on the whole sum."""
    noise = Gaussian(noise_multiplier)
    return Plan.of([Release(*SHARED, "l2", layout.sensitivity, noise)])


def multiplier_for(layout: Groups, budget: Budget) -> Decimal:
    """Find the smallest noise multiplier, of six digits, within the budget. InputError where delta is 0."""
    if not budget.delta > 0:
        raise InputError(f"delta={budget.delta}: must be above 0, for the noise is Gaussian")
    low, high = 0, int(WIDEST / FINEST)
    while high - low > 1:
        middle = (low + high) // 2
        costs = gdp.epsilon_of(plan_of(layout, middle * FINEST), budget.delta)
        low, high = (middle, high) if costs is None or costs > budget.epsilon else (low, middle)
    return high * FINEST
