"""Charges for releases made elsewhere, judged apart from the code that wrote them: each figure from what the curve
says, and the sums of every account of both parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import exp, inf
from typing import Any

from dpserve_verify.audit.judge import Value
from dpserve_verify.audit.replay_budget import Books, DatasetState
from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.privacy.budget import NANO, from_nano
from dpserve_verify.privacy.events import PureDp
from dpserve_verify.privacy.outside import KINDS, NO_BOUND, Curve
from dpserve_verify.privacy.second_opinion import renyi
from dpserve_verify.privacy.soundness import FLOAT, read_figures, require


@dataclass
class Charges:
    """What was charged before: by the entry of its dataset, and what it is known again by."""

    known: set[tuple[Any, ...]] = field(default_factory=set)
    deltas: dict[str, Decimal] = field(default_factory=dict)

    def on(self, seq: int) -> bool:
        """Return whether something was charged on the dataset that the entry `seq` registered."""
        return any(key[0] == seq for key in self.known)

    def judge(self, books: Books, value: Value, ledger: str) -> None:
        """Judge a `charged` entry: it charges every account of its blocks, of both parts, at least what its curve comes
        to, within each total, and says so where the same was charged before. `ledger`: the origin of the log itself.
        """
        name, mechanism = value["dataset"], value["mechanism"]
        window = books.blocks.window(value, reads=False)
        dataset = books.dataset(name, None, window)
        require(not dataset.remote, "dataset: its rows stay with their owners")
        parts = [dataset, *([books.dataset(name, "holdout", window)] if dataset.held else [])]
        figures = read_figures(value["price"], dataset.orders)
        least_pure, least = _least(value, books.of(dataset)[0].unit, dataset.orders)
        covered = bool(figures.unbounded) or figures.pure >= least_pure
        require(covered, "price: the pure sum is below what the curve gives")
        enough = all(figure >= low for figure, low in zip(figures.rdp, least, strict=True))
        require(enough, "price: at some order is below what the curve gives")
        self._judge_delta(books, dataset, value)
        for part in parts:
            for family, cost in zip(books.of(part), books.split(part, figures), strict=True):
                family.used = family.used.plus(cost)
                family.require_open()
        books.judge_after(value, [account for part in parts for account in part.families], None, window)
        known_by = value["document"] if "document" in value else (mechanism, str(value["curve"]))
        keys = {(dataset.seq, known_by), *((dataset.seq, *release) for release in _releases(value, ledger))}
        came_before = any(key in self.known for key in keys)
        before = "charged before" if came_before else "not charged before"
        require(value.get("another", False) is came_before, f"another: the same was {before}")
        self.known |= keys

    def _judge_delta(self, books: Books, dataset: DatasetState, value: Value) -> None:
        """Judge the delta of a charge: what is set apart of each total pays for all of them, in whichever blocks."""
        stated = Curve.read(value["curve"])
        require(("delta" in value) == bool(stated.delta), "delta: must stand where the curve has one")
        if not stated.delta:
            return
        rows, delta = value.get("contributions", 1), parse_decimal(value["delta"])
        least = float(stated.delta) * rows * exp((rows - 1) * float(stated.value)) * (1 - FLOAT)
        require(float(delta) >= least, "delta: is below that of as many records")
        families = {books.families[name].family or name for name in dataset.families}
        for family in families:
            self.deltas[family] = self.deltas.get(family, Decimal(0)) + delta
        spent = max(self.deltas[family] for family in families)
        apart = min(account.budget.outside for account in books.of(dataset))
        require(spent <= apart, f"delta: of {apart:f} set apart for releases made elsewhere, {spent:f} is spent")


def _releases(value: Value, ledger: str) -> list[tuple[str, int]]:
    """Return the releases of other ledgers that a charge is for. LedgerInvalid where they are not in their form."""
    lines = value.get("releases", [])
    require(not lines or "document" in value, "releases: are of a document")
    found = [(line["ledger"], line["reservation"]) for line in lines]
    require(all(at != ledger for at, _ in found), "releases: each is of another ledger")
    require(len(set(found)) == len(found), "releases: names one twice")
    return found


def _least(value: Value, protects: str, orders: tuple[Decimal, ...]) -> tuple[float, list[float]]:
    """Return the least pure figure and the least at each order, in nano-units, of what an entry's curve says that one
    unit costs. LedgerInvalid where it is not in its one form, or speaks of another unit.
    """
    stated, rows = value["curve"], 1
    curve = Curve.read(stated)
    require(curve.to_json() == stated, "curve: must be in its one form")
    if value["unit"] == protects:
        require("contributions" not in value, "contributions: stands where the curve protects one record of a person")
    else:
        rows = value.get("contributions", 0)
        sound = value["unit"] == "record" and rows > 0
        require(sound, f"unit: must be {protects}, or a record with how many of a person were read")
    if "renyi" in stated:
        require(rows == 1, "contributions: nothing follows from a Renyi curve of one record for several")
        points = {parse_decimal(order): parse_decimal(figure) * NANO for order, figure in stated["renyi"].items()}
        least = [min((float(points[at]) for at in points if at >= order), default=NO_BOUND) for order in orders]
        if "epsilon" not in stated:
            return inf, least
        pure, by_pure = _least_of_pure(Fraction(parse_decimal(stated["epsilon"])), orders)
        return pure, [min(pair) for pair in zip(least, by_pure, strict=True)]
    kind, number = next((kind, stated[kind]) for kind in KINDS if kind in stated)
    each = Fraction(parse_decimal(number)) * rows
    match kind:
        case "epsilon":
            return _least_of_pure(each, orders)
        case "rho":  # of k records k^2 rho
            return inf, [float(each * rows * Fraction(order) * NANO) * (1 - FLOAT) for order in orders]
        case _:
            return inf, [float(each * each * Fraction(order) / 2 * NANO) * (1 - FLOAT) for order in orders]


def _least_of_pure(epsilon: Fraction, orders: tuple[Decimal, ...]) -> tuple[float, list[float]]:
    pure = PureDp(from_nano(int(epsilon * NANO)))
    return float(epsilon * NANO), [renyi(pure, float(order)) * NANO * (1 - FLOAT) for order in orders]
