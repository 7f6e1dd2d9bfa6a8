"""Charges for releases made elsewhere: a census table, a model of another tool. Each is an entry of its own kind,
checked and appended within one transaction; its price stays in the sums for good (docs/privacy/outside.md).

An outside release may have read anybody, so it is charged to the accounts of both parts, and of every block it names.
No quota bounds it: a quota limits what an analyst asks of this ledger, and this was not asked of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from accountant.errors import NameTaken
from accountant.ledger.admission import charges_of
from accountant.ledger.families import block_rows
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.family_rows import after
from accountant.ledger.families.left import describe_accounts, left_of, room_words
from accountant.ledger.families.records import HOLDOUT, LONGEST_NAME, NotCommitted, Why
from accountant.log.entries import Writer
from accountant.log.rare_entries import CHARGED
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.log.entry import Entry
from dpserve_verify.privacy.budget import percent_words, short_delta, used_words
from dpserve_verify.privacy.filter import Price, price_to_json
from dpserve_verify.privacy.made_from import Name
from dpserve_verify.privacy.outside import RENYI, Curve

if TYPE_CHECKING:
    from accountant.ledger.ledger import Ledger

ROW, PERSON = "record", "person"
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
_STEPS = 40  # of the search for what would fit
_NEWEST = 50  # charges that a description lists
_SHOWN = (
    *("time", "by", "mechanism", "curve", "unit", "contributions", "blocks", "document", "releases", "price", "delta"),
)


@dataclass(frozen=True)
class Outside:
    """A release that was made elsewhere. InputError where a text is not one line, or a digest none.

    Attributes:
        curve: what it costs one `unit`, under the dataset's neighbouring relation.
        mechanism: what released it, in words.
        why: who charges it, and why.
        document: sha256 of what says so; None: nothing is at hand.
        unit: what the curve protects, `record` or `person`.
        contributions: how many records of a person it read at most; needed where the curve protects a record and the
            dataset a person.
        another: whether it is another release than one charged before, of which the same is said.
        blocks: of a dataset that has grown, which it may have read, in words; also some whose rows are gone by now.
        releases: of another ledger, what is charged: the release itself first, then what it was made from.
    """

    curve: Curve
    mechanism: str
    why: Why
    document: str | None = None
    unit: str = ROW
    contributions: int | None = None
    another: bool = False
    blocks: str | None = None
    releases: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        if not self.mechanism.strip() or not self.mechanism.isprintable() or len(self.mechanism) > LONGEST_NAME:
            raise InputError(f"mechanism: must be one line of 1 to {LONGEST_NAME} characters")
        if self.document is not None and not _DIGEST.fullmatch(self.document):
            raise InputError("document: must be a sha256 digest, 64 hexadecimal digits in lower case")
        if self.unit not in (ROW, PERSON):
            raise InputError(f"unit={self.unit!r:.40}: must be {ROW} or {PERSON}")

    def fields(self) -> dict[str, Any]:
        """Return what its entry states of it."""
        releases = [{"ledger": ledger, "reservation": job} for ledger, job in self.releases]
        optional = {"document": self.document, "contributions": self.contributions, "blocks": self.blocks}
        return {
            "curve": self.curve.to_json(),
            "mechanism": self.mechanism,
            "unit": self.unit,
            "reason": self.why.reason,
            "by": self.why.by,
            **{name: value for name, value in optional.items() if value is not None},
            **({"releases": releases} if releases else {}),
        }


def keys_of(entry: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    """Return by what a charge is known again, from its entry: the document, else mechanism and curve, in its canonical
    form; and each release that it is for, whatever statement of it was given.
    """
    told = (entry["document"],) if "document" in entry else (entry["mechanism"], canonical.spell(entry["curve"]))
    releases = {(line["ledger"], line["reservation"]) for line in entry.get("releases", ())}
    return {(entry["dataset"], *key) for key in ({told} | releases)}


def charged_releases(ledger: Ledger, name: str) -> set[Name]:
    """Return the releases of other ledgers that were charged to a dataset, by themselves or within others."""
    charged = (entry.value for entry in charged_entries(ledger) if entry.value["dataset"] == name)
    return {(line["ledger"], line["reservation"]) for value in charged for line in value.get("releases", ())}


def charged_entries(ledger: Ledger) -> tuple[Entry, ...]:
    """Return every charge of this ledger for what was released elsewhere, the oldest first."""
    with ledger.log.signed() as signed:
        return signed.rare().charged


def describe_charges(ledger: Ledger, dataset: Dataset) -> dict[str, Any]:
    """Describe what was charged to a dataset for releases made elsewhere: each charge, the newest first, how many there
    are, and their share of the account of which most is used.
    """
    charged = [entry for entry in charged_entries(ledger) if entry.value["dataset"] == dataset.registration.name]
    family = dataset.most_used
    share = family.share_of(sum((each.price for each in charges_of(family, charged)), family.filter.nothing()))
    releases = "1 release" if len(charged) == 1 else f"{len(charged) or 'no'} releases"
    listed = [
        {
            "entry": entry.seq,
            "words": Curve.read(entry.value["curve"]).words,
            **{name: entry.value[name] for name in _SHOWN if name in entry.value},
        }
        for entry in charged[: -_NEWEST - 1 : -1]
    ]
    words = f"{releases} made elsewhere: {percent_words(share)} of the budget"
    described = {"count": len(charged), "share": f"{share:.6f}", "words": words, "listed": listed}
    apart = min(each.budget.outside for each in dataset.families)
    if not apart:
        return described
    spent = _delta_spent(charged_entries(ledger), dataset, ledger.dataset)
    words += f"; {short_delta(spent)} of the delta {short_delta(apart)} that is set apart for them"
    return described | {"words": words, "delta": {"apart": decimal_string(apart), "spent": decimal_string(spent)}}


def rehearse(ledger: Ledger, name: str, outside: Outside) -> Dataset:
    """Return the dataset as a charge would leave it: it is done, and not committed. Raises as `charge`."""
    with suppress(NotCommitted), ledger.log.writing() as writer:
        _charge(writer, name, outside)
        dataset = block_rows.load(writer.connection, name)
        raise NotCommitted
    return dataset


def charge(ledger: Ledger, name: str, outside: Outside) -> int:
    """Charge a release that was made elsewhere; return the index of its `charged` entry.

    Raises:
        UnknownName: There is no such dataset.
        InputError: It protects another unit, names no blocks of a dataset that has grown, or rows that owners keep.
        NameTaken: The same was charged before on this dataset, and is not said to be another release.
        BudgetRefused: It does not fit into what is left; nothing was written.
    """
    with ledger.log.writing() as writer:
        return _charge(writer, name, outside)


def _charge(writer: Writer, name: str, outside: Outside) -> int:
    parts = list(_parts(writer, name, outside))
    dataset = parts[0]
    curve = _of_unit(dataset, outside)
    same = keys_of({"dataset": name, **outside.fields()})
    before = [entry for entry in writer.signed.rare().charged if not same.isdisjoint(keys_of(entry.value))]
    if before and not outside.another:
        raise NameTaken(
            f"dataset={name}: this release was charged before, as entry {before[0].seq}; where it is another one, say "
            "so (--another; over REST: `another`)",
            entry=before[0].seq,
        )
    if curve.delta:
        _require_delta(writer, dataset, curve)
    cost = curve.price(dataset.orders)
    lines = list[dict[str, Any]]()
    for part in parts:
        costs = part.costs_of(cost)
        if part.refusing(costs) is not None:
            raise _refusal(part, curve, costs)
        nothing = [family.filter.nothing() for family in part.families]
        families = [replace(family, used=family.used + each) for family, each in zip(part.families, costs, strict=True)]
        balances = after(families, nothing)
        block_rows.put(writer.connection, part.families, balances)
        lines += block_rows.merge_equal_blocks(part.families, balances)
    fields = outside.fields() | ({"another": True} if before else {})
    fields |= {"window": [*dataset.window]} if dataset.window is not None else {}
    fields |= {"delta": decimal_string(curve.delta)} if curve.delta else {}
    return writer.append(CHARGED, dataset=name, **fields, price=price_to_json(cost, dataset.orders), after=lines)


def _require_delta(writer: Writer, dataset: Dataset, curve: Curve) -> None:
    """Raise unless what is set apart of every total has room for the curve's delta: InputError where nothing is set
    apart, else BudgetRefused.
    """
    name, apart = dataset.registration.name, min(family.budget.outside for family in dataset.families)
    others = "state its noise (dpserve charge --rho, --mu or --renyi), or the epsilon that holds at delta 0"
    if not apart:
        raise InputError(
            f"delta={short_delta(curve.delta)}: dataset {name} sets nothing of its delta apart for releases made "
            f"elsewhere, which is said at registration (--delta-outside); {others}"
        )

    def load(other: str) -> Dataset:
        return block_rows.load(writer.connection, other, None, None, writer.signed)

    spent = _delta_spent(writer.signed.rare().charged, dataset, load)
    if spent + curve.delta > apart:
        raise _refusal(
            dataset, curve, [curve.price(family.filter.orders) for family in dataset.families],
            f"delta {short_delta(curve.delta)} does not fit: of {short_delta(apart)} set apart for releases made "
            f"elsewhere, {short_delta(spent)} is spent; {others}",
        )  # fmt: skip


def _delta_spent(charged: Sequence[Entry], dataset: Dataset, load: Callable[[str], Dataset]) -> Decimal:
    """Return the sum of the deltas that were charged to a family of the dataset, to whichever blocks; of several
    families the largest.
    """
    spent = dict.fromkeys(dataset.identities, Decimal(0))
    for value in (entry.value for entry in charged if "delta" in entry.value):
        for identity in load(value["dataset"]).identities:
            if identity in spent:
                spent[identity] += parse_decimal(value["delta"])
    return max(spent.values())


def _parts(writer: Writer, name: str, outside: Outside) -> Iterator[Dataset]:
    """Yield the dataset by the accounts of each part: also of blocks whose rows were deleted, for the release may have
    read them. InputError where it has grown and no blocks are named.
    """
    dataset = block_rows.load(writer.connection, name, None, None, writer.signed, outside.blocks, rows=False)
    if dataset.registration.remote:
        raise InputError(f"dataset={name}: its rows stay with their owners, who alone know what was released of them")
    block_rows.require_window(dataset, outside.blocks)
    yield dataset
    if dataset.holdout is not None:
        yield block_rows.load(writer.connection, name, None, HOLDOUT, writer.signed, outside.blocks, rows=False)


def _of_unit(dataset: Dataset, outside: Outside) -> Curve:
    """Return what the release costs one unit of the dataset. InputError where its curve protects another one."""
    about = dataset.registration
    if outside.unit == about.unit.name:
        if outside.contributions is not None:
            raise InputError(f"contributions: the curve protects a {outside.unit}, as the dataset does; leave it out")
        return outside.curve
    if outside.unit == PERSON:
        raise InputError(
            f"unit={PERSON}: dataset {about.name} protects one record, and whose rows belong together is not known "
            "here; state what the release costs one record (unit record)"
        )
    if outside.contributions is None:
        raise InputError(
            f"unit={ROW}: dataset {about.name} protects a whole person ({about.unit.column}); say that the curve does "
            "too (--unit person), or how many records of a person the release read at most (--contributions N)"
        )
    return outside.curve.of_rows(outside.contributions)


def _refusal(dataset: Dataset, curve: Curve, costs: Sequence[Price], short: str = "") -> BudgetRefused:
    """Return the refusal of a charge: what was asked, spent, left, and the same kind of curve that would fit. `short`:
    why its delta does not, where that is so.
    """
    pairs = [*zip(dataset.families, costs, strict=True)]
    refusing = pairs if short else [pair for pair in pairs if not pair[0].admits(pair[1])]
    family, cost = max(refusing, key=lambda pair: (pair[0].whole is not None, pair[0].share))
    summary, left = describe_accounts([family]), left_of(dataset.families, dataset.delta, dataset.window)
    left_json, fits = left.to_json(), None if short else _would_fit(dataset, curve)
    name = dataset.registration.name
    closed = "" if family.whole is None else f"; closed by job {family.whole.job}, which took the whole total"
    words = "" if fits is None else f"; {curve.kind} {fits[curve.kind]} would fit"
    message = short and f"dataset={name}: {short}"
    message = message or (
        f"dataset={name}: {curve.words} does not fit; {used_words(left.share)}. {room_words(left_json)}{words}"
        f"{closed}. "
        "What was released cannot be undone: a larger total (dpserve dataset budget) says what people were promised"
    )
    return BudgetRefused(
        message, dataset=name, asked={**curve.to_json(), "price": price_to_json(cost, family.filter.orders)},
        spent=summary["spent"], left=left_json, reserved=summary["reserved"], reason="budget", would_fit=fits,
        account=summary["account"],
    )  # fmt: skip


def _would_fit(dataset: Dataset, curve: Curve) -> dict[str, str] | None:
    """Return the largest curve of this kind that fits, to three digits; None of a Renyi curve, and where none does."""
    if curve.kind == RENYI:
        return None
    low, high = Decimal(0), curve.value
    for _ in range(_STEPS):
        middle = ((low + high) / 2).quantize(Decimal("1e-9"))
        if not middle:
            break
        costs = dataset.costs_of(replace(curve, value=middle).price(dataset.orders))
        low, high = (middle, high) if dataset.refusing(costs) is None else (low, middle)
    if not low:
        return None
    digits = low.quantize(Decimal(1).scaleb(max(-9, low.adjusted() - 2)), rounding=ROUND_FLOOR)
    return {curve.kind: decimal_string(digits)} if digits else None
