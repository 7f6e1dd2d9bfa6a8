"""Pricing: pure functions of public numbers, remembered, and worked out wherever `WHERE` says.

A price takes up to some tenths of a second of arithmetic. A command works it out at once; a server, which others wait
for, hands it to a process beside it. What is only told may come from an earlier process (`KEPT`), so this loads nothing
that works prices out: `training.planning.price_calculation` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from accountant.formats import canonical
from accountant.home import Home, local
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Request
from training.learners import LEARNERS
from training.planning import price_files
from training.session.learner import Offer, Recipe
from training.session.session import Public


def here(function: Callable[..., Any], *arguments: Any) -> Any:
    """At once, in this thread."""
    return function(*arguments)


# Calls a function of `training.planning.price_calculation` with its arguments, all of them frozen: they may go to
# another process.
WHERE: ContextVar[Callable[..., Any]] = ContextVar("dpserve.pricing", default=here)

# The folder of `training.planning.price_files`, where figures are told and nothing is charged; None: each is worked out
# here.
KEPT: ContextVar[Path | None] = ContextVar("dpserve.kept_prices", default=None)


def offer_for(request: Request, public: Public) -> Offer:
    """InputError where what is asked for cannot be."""
    found: Offer | dict[str, Any] = _remembered("offer", request.learner, _text(request), public)
    return found if isinstance(found, Offer) else Offer(found["recipe"], tuple(found["warnings"]), found["tuning"])


def floor_for(request: Request, public: Public) -> Recipe:
    """A recipe for the same by the bounds that are cheap: what is asked for costs as much, or more. InputError as
    `offer_for`.
    """
    found: Recipe = _remembered("floor", request.learner, _text(request), public)
    return found


def fit_for(request: Request, public: Public, dataset: Dataset, unit: Decimal) -> dict[str, str] | None:
    """What a refusal says: the largest budget at this delta that this learner could still get; None if none is.
    `unit`: of what was refused.
    """
    found: dict[str, str] | None = _remembered("fit", request.learner, _text(request), public, dataset, unit)
    return found


def references_for(public: Public) -> dict[str, Recipe]:
    """Every learner's recipe by defaults, of those that are for this target and have a plan so cheap. No recipe depends
    on what the target is called, so targets of one kind are priced once.
    """
    found: dict[str, Recipe] = _remembered("references", *_alike(public))
    return found


def known_references(public: Public) -> dict[str, Recipe] | None:
    """As `references_for`, where somebody has asked for them before; None where nobody has: at once, for lists."""
    with suppress(LookupError):
        found: dict[str, Recipe] = _kept_before(KEPT.get(), "references", _alike(public))
        return found
    return None


def _alike(public: Public) -> tuple[tuple[str, ...], Public]:
    classes = public.classes and tuple(map(str, range(len(public.classes))))
    return tuple(LEARNERS), replace(public, target="", classes=classes)


def _text(request: Request) -> str:
    return canonical.encode(dict(request.parameters)).decode()


def _remembered(what: str, *arguments: Any) -> Any:
    folder = KEPT.get()
    return _worked_out(what, arguments) if folder is None else _told(folder, what, arguments)


@lru_cache(maxsize=1024)
def _told(folder: Path, what: str, arguments: tuple[Any, ...]) -> Any:
    if what == "fit":  # which may be nothing
        return price_files.kept(folder, (what, *arguments), lambda: [_worked_out(what, arguments)])[0]
    return price_files.kept(folder, (what, *arguments), lambda: _worked_out(what, arguments))


@lru_cache(maxsize=1024)
def _kept_before(folder: Path | None, what: str, arguments: tuple[Any, ...]) -> Any:
    known = None if folder is None else price_files.found(folder, (what, *arguments))
    if known is None:
        raise LookupError(what)  # which is not remembered
    return known


@lru_cache(maxsize=1024)
def _worked_out(what: str, arguments: tuple[Any, ...]) -> Any:
    from training.planning import price_calculation  # loads the learners

    return WHERE.get()(getattr(price_calculation, what), *arguments)


@contextmanager
def telling(home: Home) -> Iterator[None]:
    """Around what only tells prices: they may be those that an earlier process of this machine worked out."""
    before = KEPT.set(local(home.path) / "prices")
    try:
        yield
    finally:
        KEPT.reset(before)
