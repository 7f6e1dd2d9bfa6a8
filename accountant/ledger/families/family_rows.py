"""Families and their datasets in the database: read from rows and founding entries, charged, given quotas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from accountant.errors import UnknownName
from accountant.ledger.families.families import EVERYBODY, Dataset, Family, Quota, Spent, TotalClaim, account_of
from accountant.ledger.families.records import NewPeople, Registration, Unit
from accountant.ledger.families.row_queries import RowQuery
from accountant.ledger.families.schema_profiles import profiles_from_entry
from accountant.log.entries import Signed, dumps
from accountant.log.newest import account_number
from accountant.store import engines
from accountant.store.queries import Queries, at_hand, rows_of
from accountant.store.store import BODY, body_at
from accountant.store.tables import analyst_table, block_table, dataset_table, entry_table, family_table
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical import Flat, parse_decimal
from dpserve_verify.log.entry import read_entry
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.filter import Filter, Price, price_from_json, price_to_json
from dpserve_verify.privacy.weights import Weight

PERSON = "person-total"  # the kind of the entry that founds the account of one person over all blocks
MAX_LOADED = 4096
_LOADED: dict[str, tuple[int, tuple[str, ...]]] = {}  # entry and families of datasets: what to ask ahead, and no more
WHOLE = "whole"  # beside the sums of a family's row: the job that took the whole total

# Built once: building a statement costs more than running it. A parameter that is a column's name is a value to set.
DATASET = (
    select(dataset_table, entry_table.c.body)
    .outerjoin(entry_table, entry_table.c.seq == dataset_table.c.seq)
    .where(dataset_table.c.name == bindparam("at"))
)
VERSION = (
    select(func.count())
    .select_from(dataset_table)
    .where(dataset_table.c.seq <= bindparam("upto"), dataset_table.c.families.contains(bindparam("family")))
)
FAMILY = select(family_table).where(family_table.c.id == bindparam("at"))
BESIDE = (
    select(family_table, analyst_table.c.name, analyst_table.c.share, analyst_table.c.used.label("spent"))
    .outerjoin(
        analyst_table,
        (analyst_table.c.family == family_table.c.id) & analyst_table.c.name.in_((bindparam("who"), EVERYBODY)),
    )
    .where(family_table.c.id == bindparam("at"))
)
_ANALYSTS = select(analyst_table).where(analyst_table.c.family == bindparam("at")).order_by(analyst_table.c.name)
_NEW_ANALYST = insert(analyst_table)
_PUT_ANALYST = update(analyst_table).where(
    analyst_table.c.family == bindparam("at"), analyst_table.c.name == bindparam("who")
)


def load(
    connection: Connection,
    name: str,
    analyst: str | None = None,
    part: str | None = None,
    signed: Signed | None = None,
) -> Dataset:
    """Load a dataset as it stands, by the accounts of a `part`; with `analyst`, under that analyst's quotas.
    UnknownName where there is none, InputError where it has no such part.

    `signed`: who is about to spend says so; its rows must then be what was signed last, and LedgerInvalid says which is
    not.
    """
    engines.ask_with_next(connection, questions(name, analyst, part))
    found = rows_of(connection, DATASET, {"at": name})
    if not found:
        raise UnknownName(f"dataset={name}: no such dataset", dataset=name)
    row, known = found[0], at_hand(connection)
    if known is not None and row.body is not None:
        known[BODY, row.seq] = [(row.body,)]
    entry = _entry(connection, signed, row.seq, row.body)
    identities, read = json.loads(row.families), {row.seq: entry}
    if len(_LOADED) >= MAX_LOADED:
        _LOADED.clear()
    _LOADED[name] = row.seq, tuple(identities)
    stated = entry.get("dataset"), entry.get("families", [entry.get("family")])
    if signed and (stated != (name, identities) or row.seq in signed.rare().withdrawn):
        raise mismatch(f"dataset {name}", row.seq)
    families = tuple(load_family(connection, identity, analyst, read, part, signed) for identity in identities)
    registration = Registration(
        entry["dataset"],
        Relation(entry["relation"]),
        _budget(entry) if "budget" in entry else None,
        Unit(**entry["unit"]),
        entry["records"],
        entry["schema"],
        entry["commitment"],
        () if "budget" in entry else tuple(identities),
        NewPeople(**entry["new_people"]) if "new_people" in entry else None,
        entry.get("family_name"),
        tuple(entry.get("targets", ())),
        _holdout(entry),
        "cells" in entry,
        _budget(entry, "person") if "person" in entry else None,
        RowQuery.from_json(entry["query"]) if "query" in entry else None,
        profiles_from_entry(entry),
        firsts="firsts" in entry,
        institutions=entry.get("institutions"),
        weight=Weight.from_json(entry["weight"]) if "weight" in entry else None,
    )
    version = _version(connection, signed, row.seq, identities[0])
    return Dataset(registration, entry["uuid"], row.seq, version, families, row.last, row.dropped or 0)


def questions(name: str, analyst: str | None, part: str | None = None) -> Queries:
    """List what `load` will ask, as far as it is known before: of a dataset that was loaded before, all."""
    seq, identities = _LOADED.get(name, (0, ()))
    accounts = [account_of(identity, part) for identity in identities]
    beside = [(FAMILY, {"at": at}) if analyst is None else (BESIDE, {"at": at, "who": analyst}) for at in accounts]
    versions = [(VERSION, {"upto": seq, "family": identity}) for identity in identities[:1]]
    return [(DATASET, {"at": name}), *beside, *versions]


def _version(connection: Connection, signed: Signed | None, seq: int, family: str) -> int:
    """Return the version of the dataset registered by entry `seq`: how many datasets its family had then."""
    versions = {} if signed is None else signed.known.versions
    if seq not in versions:
        versions[seq] = int(rows_of(connection, VERSION, {"upto": seq, "family": family})[0][0])
    return versions[seq]


def load_family(
    connection: Connection,
    identity: str,
    analyst: str | None = None,
    read: Mapping[int, dict[str, Any]] | None = None,
    part: str | None = None,
    signed: Signed | None = None,
) -> Family:
    """Load a family as it stands, by the account of a `part`. The stored filter must be the one that its budget gives.
    `read`: entries at hand; `signed`: as for `load`. InputError where nothing is kept aside and `part` asks for it.
    """
    account = account_of(identity, part)
    if analyst is None:
        rows = rows_of(connection, FAMILY, {"at": account})
    else:
        rows = rows_of(connection, BESIDE, {"at": account, "who": analyst})
    if not rows and part is not None:
        raise InputError(f"part={part}: no rows of this family are kept aside; that is declared at registration")
    if not rows:
        raise UnknownName(f"family={identity}: no such family", family=identity)
    row = rows[0]
    founding = (read or {}).get(row.seq) or _entry(connection, signed, row.seq)
    if signed and (founding["type"], founding.get("family")) != ("dataset-registered", identity):
        raise mismatch(f"family {identity}", row.seq)
    design = Filter.design(_budget(founding))
    stored, before = founding, design.budget.epsilon
    if row.changed is not None:
        stored = _entry(connection, signed, row.changed)
        if stored["type"] != "budget-changed":
            raise mismatch(f"family {row.id}", row.changed)
        design = design.with_total(_budget(stored).epsilon)
        before = parse_decimal(stored["largest"])
    if stored["filter"] != design.to_json():
        at = row.seq if row.changed is None else row.changed
        raise LedgerInvalid(f"entry {at}: the stored filter is not the one that its budget gives", entry=at)
    subject = f"family {row.id}"
    sums, waits = (_sums(text, subject, row.seq) for text in (row.used, row.reserved))
    if signed:
        _require_newest(signed, row, part, sums, waits, design)
    used, reserved = (price_from_json(item, design.orders) for item in (sums, waits))
    closed_by = None
    if WHOLE in sums:
        claimed = read_entry(sums[WHOLE], body_at(connection, sums[WHOLE])).value["claim"]
        closed_by = TotalClaim(sums[WHOLE], parse_decimal(claimed["epsilon"]))
    unit, relation = Unit(**founding["unit"]), Relation(founding["relation"])
    quota, spent = None, None
    if analyst is not None:
        by_analyst = {item.name: item for item in rows if item.name is not None}
        text = by_analyst[analyst].spent if analyst in by_analyst else price_text(design.nothing(), design)
        spent_sums = _sums(text, f"analyst {analyst}", row.seq)
        if signed:
            _require_shares(by_analyst, signed, identity, analyst)
            _require_spent(spent_sums, signed, account_number(row.seq, part), analyst, design)
        spent = Spent(analyst, price_from_json(spent_sums, design.orders), analyst in by_analyst)
        share = _share_of(by_analyst, analyst)
        quota = None if share is None else Quota(analyst, share, design.part(share), spent.used)
    rest = family_name(founding), before, closed_by, _holdout(founding), part, row.changed, spent
    return Family(identity, row.seq, relation, unit, design, used, reserved, quota, *rest)


def _entry(connection: Connection, signed: Signed | None, seq: int, body: bytes | None = None) -> dict[str, Any]:
    """Read an entry. `body`: its bytes, where they are at hand."""
    if signed is not None:
        return signed.entry(seq, body if body is None else bytes(body)).value
    return read_entry(seq, body_at(connection, seq) if body is None else bytes(body)).value


def mismatch(what: str, entry: int) -> LedgerInvalid:
    """Return the error of an index row that differs from what was signed."""
    return LedgerInvalid(
        f"index: {what}: its row says something else than was signed, see entry {entry}: somebody else wrote it. "
        "Nothing is spent on it until it is put right (dpserve ledger audit)",
        entry=entry,
        index=what,
    )


def _sums(text: str, what: str, entry: int) -> dict[str, Any]:
    """Return what a row says was used. LedgerInvalid where it is no JSON."""
    try:
        sums: dict[str, Any] = json.loads(text)
        return sums
    except ValueError:
        raise mismatch(what, entry) from None


def _require_newest(
    signed: Signed, row: Row[Any], part: str | None, sums: dict[str, Any], waits: dict[str, Any], design: Filter
) -> None:
    """Raise LedgerInvalid unless a family's row equals the balance in the latest entry about it."""
    number = account_number(row.seq, part)
    newest = signed.after(number)
    if newest:
        balance = signed.balance_of(newest, number) or {}
    else:
        nothing = price_to_json(design.nothing(), design.orders)
        balance = {"used": nothing, "changed": None, "reserved": nothing}
    if (sums, row.changed, waits) != tuple(map(balance.get, ("used", "changed", "reserved"))):
        raise mismatch(f"family {row.id}", newest or row.seq)


def _require_shares(rows: Mapping[str, Any], signed: Signed, identity: str, analyst: str) -> None:
    """Raise LedgerInvalid unless the rows of the analyst, and of everybody, have the quotas that were set last."""
    quotas = signed.rare().quotas
    for name in (analyst, EVERYBODY):
        quota = quotas.get((identity, name))
        if (rows[name].share if name in rows else None) != (quota and quota.value["share"]):
            raise mismatch(f"analyst {name}", quota.seq if quota else 0)


def _require_spent(sums: dict[str, Any], signed: Signed, number: int, analyst: str, design: Filter) -> None:
    """Raise LedgerInvalid unless the analyst's row equals the balance in the latest entry about analyst and account."""
    (newest,) = signed.newest.spent([number], analyst)
    expected: dict[str, Any] | None = price_to_json(design.nothing(), design.orders)
    if newest:
        balance = (signed.balance_of(newest, number) or {}).get("analyst", {})
        expected = balance.get("used") if balance.get("name") == analyst else None
    if sums != expected:
        raise mismatch(f"analyst {analyst}", newest)


def _holdout(founding: Mapping[str, Any]) -> Decimal | None:
    return parse_decimal(founding["holdout"]) if "holdout" in founding else None


def family_name(founding: Mapping[str, Any]) -> str:
    """Return the name of the family that this entry founds: as given, else the dataset's."""
    return str(founding.get("family_name", founding["dataset"]))


def family_names(connection: Connection) -> dict[str, str]:
    """Return every family's name -> its identity."""
    of_blocks = select(block_table.c.seq)
    seqs = connection.execute(
        select(family_table.c.seq).where(family_table.c.seq.not_in(of_blocks)).distinct()
    ).scalars()
    founding = [read_entry(seq, body_at(connection, seq)).value for seq in seqs]
    return {family_name(value): value["family"] for value in founding if value["type"] != PERSON}


def member(connection: Connection, name: str) -> str:
    """Return what `Ledger.member` does."""
    rows, identity = dataset_table.c, family_names(connection).get(name)
    families = connection.execute(select(rows.families).where(rows.name == name)).scalar()
    if families and (identity is None or identity in families):
        return name
    if families:
        raise InputError(f"{name}: is a dataset's name, and that of a family of others: name one of these")
    founder = select(rows.name).where(rows.families == dumps([identity])).order_by(rows.seq).limit(1)
    founder_name = connection.execute(founder).scalar() if identity else None
    if founder_name is None:
        raise UnknownName(f"dataset={name}: no such dataset or family", dataset=name)
    return str(founder_name)


def _budget(entry: dict[str, Any], which: str = "budget") -> Budget:
    return _budget_of(*(entry[which].get(name, "0") for name in ("epsilon", "delta", "outside")))


_budget_of = lru_cache(maxsize=1024)(Budget.of)  # of few families, at each admission


def _share_of(rows: Mapping[str, Any], analyst: str) -> Decimal | None:
    """Return the analyst's own quota, else everybody's; None where neither was set."""
    shares = [rows[name].share for name in (analyst, EVERYBODY) if name in rows and rows[name].share is not None]
    return Decimal(shares[0]) if shares else None


def question_of_quotas(dataset: Dataset) -> Queries:
    """List what `quotas` will ask of a dataset's first family."""
    return [(_ANALYSTS, {"at": dataset.families[0].account})]


def quotas(connection: Connection, family: Family) -> list[dict[str, Any]]:
    """Return what each analyst used of the family's budget, as a share of it, and the quota that holds for each."""
    rows = rows_of(connection, _ANALYSTS, {"at": family.account})
    general = next((row.share for row in rows if row.name == EVERYBODY), None)
    used_shares = []
    for row in rows:
        used = price_from_json(json.loads(row.used), family.filter.orders)
        quota = row.share if row.share is not None else general
        used_shares.append({"analyst": row.name, "quota": quota, "used": f"{family.share_of(used):.6f}"})
    return used_shares


def found_family(connection: Connection, identity: str, seq: int, design: Filter) -> None:
    """Insert a new account's row, nothing used; its founding entry is `seq`."""
    nothing = price_text(design.nothing(), design)
    values = {"id": identity, "seq": seq, "changed": None, "used": nothing, "reserved": nothing}
    connection.execute(insert(family_table).values(**values))


def after(
    families: Sequence[Family], costs: Iterable[Price], sign: int = 1, whole: int | None = None
) -> list[dict[str, Any]]:
    """Return the balances to record after a charge, refund (`sign` -1) or start (0): one line per family, with the
    analyst's.

    `whole`: the job that takes the whole total; where it is given back, nothing is used, and the family is open again.
    """
    lines, cache = [], dict[Any, tuple[Price, dict[str, Any]]]()

    def move(price: Price, cost: Price, sign: int, orders: tuple[Decimal, ...]) -> tuple[Price, dict[str, Any]]:
        """Change a price, and spell it: once for all blocks that have the same."""
        same = price, cost, sign, orders
        if same not in cache:
            new = price + cost if sign > 0 else price - cost if sign else price
            cache[same] = new, spelt(new, orders)
        return cache[same]

    for family, cost in zip(families, costs, strict=True):
        orders = family.filter.orders
        used, used_json = move(family.used, cost, sign, orders)
        _, reserved_json = move(family.reserved, cost, sign or -1, orders)
        closing = None if family.person else whole  # nobody takes the whole of one person's total
        job = closing if family.whole is None else family.whole.job
        if job is not None and used != family.filter.nothing():
            used_json = used_json | {WHOLE: job}
        line: dict[str, Any] = {
            "family": family.seq,
            "changed": family.changed,
            "used": used_json,
            "reserved": reserved_json,
        }
        if family.part is not None:
            line["part"] = family.part
        if family.person:
            line["person"] = True
        if sign and family.spent is not None:
            line["analyst"] = {"name": family.spent.analyst, "used": move(family.spent.used, cost, sign, orders)[1]}
        lines.append(line)
    return lines


class Spelt(Flat):
    """A price as an entry says it, which others say again: never changed."""

    @cached_property
    def text(self) -> str:
        """Return the JSON text that a row holds."""
        return dumps(self)


@lru_cache(maxsize=8192)  # a window that moves on leaves block after block standing as another did
def spelt(price: Price, orders: tuple[Decimal, ...]) -> Spelt:
    """Return a price as JSON; the same object for equal prices."""
    return Spelt(price_to_json(price, orders))


def text_of(figures: Mapping[str, Any]) -> str:
    """Return the sums of a line of `after` as the text that a row stores."""
    return figures.text if isinstance(figures, Spelt) else dumps(figures)


def put_share(connection: Connection, family: Family, analyst: str, share: str) -> None:
    """Write the quota into an analyst's row."""
    if not connection.execute(_PUT_ANALYST, {"at": family.account, "who": analyst, "share": share}).rowcount:
        used = price_text(family.filter.nothing(), family.filter)
        connection.execute(_NEW_ANALYST, {"family": family.account, "name": analyst, "share": share, "used": used})


def price_text(figure: Price, design: Filter) -> str:
    """Return a price as the text that a row stores."""
    return dumps(price_to_json(figure, design.orders))
