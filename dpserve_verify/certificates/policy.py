"""What a verifier asks for beyond soundness: local policy, read from a file or made in code. Nothing in it is optional
once it is set: what does not meet it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.log import witness_policy
from dpserve_verify.log.cosignature import Cosignature, require_quorum
from dpserve_verify.log.witness_policy import WitnessPolicy
from dpserve_verify.privacy.budget import Relation, exact_decimal

POLICY_LIMIT = 65_536
SLACK = timedelta(hours=1)  # between two clocks
TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Policy:
    """What a certificate must meet as well; by default, nothing.

    Args:
        largest_epsilon, largest_delta: the most that a claim may promise; None for any.
        relations: those admitted, `add-remove` and `replace-one`; None for any.
        smallest_size: entries of the largest tree seen before.
        revoked: indices of `issued` entries.
        oldest_days: days since the entry's time, which is the operator's word; None for any.
        proved: whether everything must be: no price and no sensitivity is taken at somebody's word.
        witnesses: a C2SP tlog-policy, whose quorum must have cosigned the checkpoint; None asks for none.
    """

    largest_epsilon: Decimal | None = None
    largest_delta: Decimal | None = None
    relations: Collection[str] | None = None
    smallest_size: int = 0
    revoked: Collection[int] = ()
    oldest_days: int | None = None
    proved: bool = False
    witnesses: WitnessPolicy | None = None

    def check_claim(self, epsilon: Decimal, delta: Decimal, relation: str, taken: Sequence[str] = ()) -> None:
        """Raise CertificateInvalid where the claim is more than this policy admits, or wants proofs where something is
        `taken` at somebody's word.
        """
        if self.proved and taken:
            raise CertificateInvalid(f"notCovered: local policy wants everything proved, and this is not: {taken[0]}")
        for name, value, most in (
            ("epsilon", epsilon, self.largest_epsilon),
            ("delta", delta, self.largest_delta),
        ):
            if most is not None and value > most:
                raise CertificateInvalid(f"{name}={value}: local policy admits at most {most}")
        if self.relations is not None and relation not in self.relations:
            raise CertificateInvalid(f"relation={relation}: local policy admits {sorted(self.relations)}")

    def check_place(self, size: int, note: str) -> tuple[Cosignature, ...]:
        """Return who saw a verified checkpoint of `size` entries, and when; raise where it is too small, or too few saw
        it.
        """
        if size < self.smallest_size:
            raise CertificateInvalid(f"checkpoint: size {size} is below {self.smallest_size}, which was seen before")
        if self.witnesses is None:
            return ()
        return require_quorum(note, self.witnesses)

    def check_age(self, issued: Any) -> None:
        """Raise CertificateInvalid where the `issued` entry's time lies too far back, or ahead of the clock here."""
        if self.oldest_days is None:
            return
        try:
            entered = datetime.strptime(issued, TIME).replace(tzinfo=UTC)
        except (TypeError, ValueError) as error:
            raise CertificateInvalid(f"time={issued!r:.40}: must be like 2026-01-31T12:00:00Z") from error
        age = datetime.now(UTC) - entered
        if not -SLACK <= age <= timedelta(days=self.oldest_days):
            raise CertificateInvalid(f"issued={issued}: local policy admits at most {self.oldest_days} days of age")


def read_policy(path: Path) -> Policy:
    """Read a policy file: a JSON object with the fields of Policy, decimals as strings; `witnesses` names a file beside
    it.

    InputError for anything else: a word misspelt must not weaken a policy.
    """
    try:
        body = canonical.decode(_bytes(path), POLICY_LIMIT)
    except canonical.CanonicalError as error:
        raise InputError(f"policy={path.name}: {error.message}") from error
    names = {field.name for field in fields(Policy)}
    if not isinstance(body, dict) or not body.keys() <= names:
        odd = sorted(body.keys() - names) if isinstance(body, dict) else "something else"
        raise InputError(f"policy={path.name}: must be an object with fields of {sorted(names)}, has {odd}")
    return Policy(**{name: _field(name, value, path.parent) for name, value in body.items()})


def _field(name: str, value: Any, folder: Path) -> Any:
    match name, value:
        case (("largest_epsilon" | "largest_delta"), str()):
            return exact_decimal(name, value)
        case "relations", list() if value and set(value) <= {relation.value for relation in Relation}:
            return frozenset(value)
        case "revoked", list() if all(_whole(relation) for relation in value):
            return frozenset(value)
        case (("smallest_size" | "oldest_days"), int()) if _whole(value):
            return value
        case "proved", bool():
            return value
        case "witnesses", str():
            return witness_policy.read_witness_policy(folder / value)
    raise InputError(
        f"{name}={value!r:.60}: decimals are strings, sizes and days whole, proved true or false, witnesses a file"
    )


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(POLICY_LIMIT + 1)
    except OSError as error:
        raise InputError(f"policy={path}: cannot be read ({error.strerror})") from None
