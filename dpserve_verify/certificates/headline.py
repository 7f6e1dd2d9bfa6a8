"""The one price that a statement is known by: its claim, or the sum with what it was made from."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.privacy.budget import short_delta
from dpserve_verify.privacy.made_from import Source


def headline_of(rows: Any, epsilon: Decimal, delta: Decimal) -> tuple[Decimal, Decimal]:
    """Return what one who has a release has of one unit, epsilon and delta.

    `rows`: the form that says whose rows were read, with `together`; `epsilon`, `delta`: the claim, as verified.
    """
    if rows.together is None:
        return epsilon, delta
    return parse_decimal(rows.together.epsilon), parse_decimal(rows.together.delta)


def parts_of(rows: Any, epsilon: Decimal, delta: Decimal) -> tuple[str, ...]:
    """Say what the headline is the sum of, one part each, and what is of other people; nothing where a release was made
    from no other.
    """
    sources = [Source.from_json(source.to_json()) for source in rows.made_from or ()]
    own = f"by itself epsilon {epsilon:f} at delta {short_delta(delta)}"
    others = [
        f"of other people, whose rows are in {', '.join(each.datasets)}: epsilon {each.epsilon} at delta {each.delta}"
        for each in rows.apart or ()
    ]
    return (own, *(f"made from {source.words}" for source in sources), *others) if sources else ()
