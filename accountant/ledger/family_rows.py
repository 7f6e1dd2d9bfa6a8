"""Families and their datasets in the database: read from rows and founding entries, charged, given quotas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from accountant.budget import Budget, Relation
from accountant.canonical import parse_decimal
from accountant.errors import InputError, LedgerInvalid, UnknownName
from accountant.ledger.families import EVERYBODY, Dataset, Family, Quota, Whole, account_of
from accountant.ledger.records import NewPeople, Registration, Unit
from accountant.log.entries import Signed, dumps, read_entry
from accountant.log.newest import Subjects, account_number, signed_entries
from accountant.privacy.claims import Price
from accountant.privacy.filter import Filter, price_from_json, price_to_json
from accountant.store.store import body_at
from accountant.store.tables import analyst_table, dataset_table, entry_table, family_table

WHOLE = "whole"  # beside the sums of a family's row: the job that took the whole total

# Built once: building a statement costs more than running it. A parameter that is a column's name is a value to set.
_DATASET = select(dataset_table).where(dataset_table.c.name == bindparam("at"))
_VERSION = (
    select(func.count())
    .select_from(dataset_table)
    .where(dataset_table.c.seq <= bindparam("upto"), dataset_table.c.families.contains(bindparam("family")))
)
_FAMILY = select(family_table).where(family_table.c.id == bindparam("at"))
_ACCOUNT = update(family_table).where(family_table.c.id == bindparam("at"))
_ANALYSTS = select(analyst_table).where(analyst_table.c.family == bindparam("at")).order_by(analyst_table.c.name)
_NAMED = _ANALYSTS.where(analyst_table.c.name.in_(bindparam("names", expanding=True)))
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
    """A dataset as it stands, by the accounts of a `part`; with `analyst`, under that analyst's quotas. UnknownName
    where there is none, InputError where it has no such part.

    `signed`: who is about to spend says so; its rows must then be what was signed last, and LedgerInvalid says which is
    not.
    """
    row = connection.execute(_DATASET, {"at": name}).first()
    if row is None:
        raise UnknownName(f"dataset={name}: no such dataset", dataset=name)
    entry = read_entry(row.seq, _body(connection, signed, row.seq)).value
    identities, read = json.loads(row.families), {row.seq: entry}
    if signed and (entry.get("dataset"), entry.get("families", [entry.get("family")])) != (name, identities):
        raise _mismatch(f"dataset {name}", row.seq)
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
        _share(entry),
    )
    version = connection.execute(_VERSION, {"upto": row.seq, "family": identities[0]}).scalar_one()
    return Dataset(registration, entry["uuid"], row.seq, int(version), families)


def load_family(
    connection: Connection,
    identity: str,
    analyst: str | None = None,
    read: Mapping[int, dict[str, Any]] | None = None,
    part: str | None = None,
    signed: Signed | None = None,
) -> Family:
    """A family as it stands, by the account of a `part`. The stored filter must be the one that its budget gives.
    `read`: entries at hand; `signed`: as for `load`. InputError where nothing is kept aside and `part` asks for it.
    """
    row = connection.execute(_FAMILY, {"at": account_of(identity, part)}).first()
    if row is None and part is not None:
        raise InputError(f"part={part}: no rows of this family are kept aside; that is declared at registration")
    if row is None:
        raise UnknownName(f"family={identity}: no such family", family=identity)
    founding = (read or {}).get(row.seq) or read_entry(row.seq, _body(connection, signed, row.seq)).value
    if signed and (founding["type"], founding.get("family")) != ("dataset-registered", identity):
        raise _mismatch(f"family {identity}", row.seq)
    design = Filter.design(_budget(founding))
    stored, before = founding, design.budget.epsilon
    if row.changed is not None:
        stored = read_entry(row.changed, _body(connection, signed, row.changed)).value
        design = design.with_total(_budget(stored).epsilon)
        before = _largest(connection, identity, row.seq, row.changed, stored)
    if stored["filter"] != design.to_json():
        at = row.seq if row.changed is None else row.changed
        raise LedgerInvalid(f"entry {at}: the stored filter is not the one that its budget gives", entry=at)
    sums = json.loads(row.used)
    if signed:
        _require_newest(signed, row, part, sums, design)
    used, reserved = (price_from_json(each, design.orders) for each in (sums, json.loads(row.reserved)))
    whole = None
    if WHOLE in sums:
        claimed = read_entry(sums[WHOLE], body_at(connection, sums[WHOLE])).value["claim"]
        whole = Whole(sums[WHOLE], parse_decimal(claimed["epsilon"]))
    unit, relation = Unit(**founding["unit"]), Relation(founding["relation"])
    quota = None
    if analyst is not None:
        shares = {each.name: each for each in _analysts(connection, row.id, (analyst, EVERYBODY))}
        quota = _quota(shares, analyst, design)
        if signed:
            _require_shares(shares, signed, identity, analyst)
    rest = family_name(founding), before, whole, _share(founding), part, row.changed
    return Family(identity, row.seq, relation, unit, design, used, reserved, quota, *rest)


def _body(connection: Connection, signed: Signed | None, seq: int) -> bytes:
    return body_at(connection, seq) if signed is None else signed.body(seq)


def _mismatch(what: str, entry: int) -> LedgerInvalid:
    return LedgerInvalid(
        f"index: {what}: its row says something else than was signed, see entry {entry}: somebody else wrote it. "
        "Nothing is spent on it until it is put right (dpserve ledger audit)",
        entry=entry,
        index=what,
    )


def _require_newest(signed: Signed, row: Row[Any], part: str | None, sums: dict[str, Any], design: Filter) -> None:
    """LedgerInvalid unless a family's row says what the newest entry about it says."""
    number = account_number(row.seq, part)
    newest = signed.after(number)
    if newest:
        lines = signed.said_after(newest)
        ours = [line for line in lines if account_number(line["family"], line.get("part")) == number]
        said = ours[0] if ours else _summed(signed, number, part, design)
    else:
        nothing = price_to_json(design.nothing(), design.orders)
        said = {"used": nothing, "changed": None, "reserved": nothing}
    reserved = json.loads(row.reserved)  # of the first ledgers no entry says it
    if (sums, row.changed, reserved) != (said["used"], said["changed"], said.get("reserved", reserved)):
        raise _mismatch(f"family {row.id}", newest or row.seq)


def _require_shares(rows: Mapping[str, Any], signed: Signed, identity: str, analyst: str) -> None:
    """LedgerInvalid unless the rows of the analyst, and of everybody, have the quotas that were set last."""
    entries = [each for each in signed.rare() if each.value["type"] == "quota-set"]
    said = {each.value["analyst"]: each for each in entries if each.value["family"] == identity}
    for name in (analyst, EVERYBODY):
        share = said[name].value["share"] if name in said else None
        if (rows[name].share if name in rows else None) != share:
            raise _mismatch(f"analyst {name}", said[name].seq if name in said else 0)


def _summed(signed: Signed, number: int, part: str | None, design: Filter) -> dict[str, Any]:
    """What a family's newest entry does not say, because it is of the first ledgers: all its entries are read, once.
    The next one says it.
    """
    used, changed, whole, prices, subjects = design.nothing(), None, None, dict[int, Price](), Subjects(whole=True)
    size = signed.size  # what this transaction has appended since is not signed yet
    for seq, body in signed_entries(signed.connection, 0, size, signed.root, end=size):
        if number not in subjects.of(seq, body):
            continue
        value = read_entry(seq, body).value
        match value["type"]:
            case "reserved":
                prices[seq] = price_from_json(value["price"], design.orders)
                used, whole = used + prices[seq], seq if "whole" in value else whole
            case "released":
                used, whole = used - prices[value["reservation"]], None
            case "budget-changed":
                changed = seq
    return {"used": price_to_json(used, design.orders) | ({} if whole is None else {WHOLE: whole}), "changed": changed}


def _share(founding: Mapping[str, Any]) -> Decimal | None:
    return parse_decimal(founding["holdout"]) if "holdout" in founding else None


def family_name(founding: Mapping[str, Any]) -> str:
    """Of the family that this entry founds: as given, else the dataset's name, as of every family of old ledgers."""
    return str(founding.get("family_name", founding["dataset"]))


def family_names(connection: Connection) -> dict[str, str]:
    """Every family's name -> its identity."""
    seqs = connection.execute(select(family_table.c.seq).distinct()).scalars()
    founding = [read_entry(seq, body_at(connection, seq)).value for seq in seqs]
    return {family_name(value): value["family"] for value in founding}


def member(connection: Connection, name: str) -> str:
    """As `Ledger.member`."""
    rows, identity = dataset_table.c, family_names(connection).get(name)
    own = connection.execute(select(rows.families).where(rows.name == name)).scalar()
    if own and (identity is None or identity in own):
        return name
    if own:
        raise InputError(f"{name}: is a dataset's name, and that of a family of others: name one of these")
    founder = select(rows.name).where(rows.families == dumps([identity])).order_by(rows.seq).limit(1)
    found = connection.execute(founder).scalar() if identity else None
    if found is None:
        raise UnknownName(f"dataset={name}: no such dataset or family", dataset=name)
    return str(found)


def _largest(connection: Connection, identity: str, founded: int, changed: int, entry: Mapping[str, Any]) -> Decimal:
    """The largest total epsilon that was ever in force; entries of the first ledgers do not say it, and there it is
    looked for.
    """
    if "largest" in entry:
        return parse_decimal(entry["largest"])
    here = (entry_table.c.seq >= founded) & (entry_table.c.seq <= changed)
    totals = []
    for seq, body in connection.execute(select(entry_table.c.seq, entry_table.c.body).where(here)):
        if identity.encode() in bytes(body):
            value = read_entry(seq, bytes(body)).value
            if value["type"] in ("dataset-registered", "budget-changed") and value["family"] == identity:
                totals.append(_budget(value).epsilon)
    return max(totals)


def _budget(entry: dict[str, Any]) -> Budget:
    return Budget.of(entry["budget"]["epsilon"], entry["budget"]["delta"])


def _quota(rows: Mapping[str, Any], analyst: str, design: Filter) -> Quota | None:
    """The analyst's own quota, else everybody's; None where neither was set."""
    shares = [rows[name].share for name in (analyst, EVERYBODY) if name in rows and rows[name].share is not None]
    if not shares:
        return None
    used = price_from_json(json.loads(rows[analyst].used), design.orders) if analyst in rows else design.nothing()
    return Quota(analyst, Decimal(shares[0]), design.part(Decimal(shares[0])), used)


def _analysts(connection: Connection, family: str, names: Iterable[str] | None = None) -> list[Any]:
    if names is None:
        return list(connection.execute(_ANALYSTS, {"at": family}))
    return list(connection.execute(_NAMED, {"at": family, "names": list(names)}))


def quotas(connection: Connection, family: Family) -> list[dict[str, Any]]:
    """What each analyst used of the family's budget, as a share of it, and the quota that holds for each."""
    rows = _analysts(connection, family.account)
    general = next((row.share for row in rows if row.name == EVERYBODY), None)
    found = []
    for row in rows:
        used = price_from_json(json.loads(row.used), family.filter.orders)
        quota = row.share if row.share is not None else general
        found.append({"analyst": row.name, "quota": quota, "used": f"{family.share_of(used):.6f}"})
    return found


def found_family(connection: Connection, identity: str, seq: int, design: Filter) -> None:
    """A new account's row: its founding entry is `seq`, and nothing is used."""
    nothing = price_text(design.nothing(), design)
    values = {"id": identity, "seq": seq, "changed": None, "used": nothing, "reserved": nothing}
    connection.execute(insert(family_table).values(**values))


def account(connection: Connection, family: Family, line: Mapping[str, Any]) -> None:
    """Put a family's sums at what `line` of `after` says."""
    values = {"used": dumps(line["used"]), "reserved": dumps(line["reserved"])}
    connection.execute(_ACCOUNT, {"at": family.account, **values})


def after(
    families: Iterable[Family], costs: Iterable[Price], sign: int = 1, whole: int | None = None
) -> list[dict[str, Any]]:
    """What an entry says that charges each family its cost, gives it back (`sign` -1), or begins to spend it (0): what
    the family's row says after it, so that one that is set back is told from it (`accountant.log.newest`). `whole`: the
    job that takes the whole total; where it is given back, nothing is used, and the family is open again.
    """
    lines = []
    for family, cost in zip(families, costs, strict=True):
        used = family.used + cost if sign > 0 else family.used - cost if sign else family.used
        reserved = family.reserved + cost if sign > 0 else family.reserved - cost
        job = whole if family.whole is None else family.whole.job
        mark = {} if job is None or used == family.filter.nothing() else {WHOLE: job}
        sums = price_to_json(used, family.filter.orders) | mark
        part = {} if family.part is None else {"part": family.part}
        waits = price_to_json(reserved, family.filter.orders)
        lines.append({"family": family.seq, "changed": family.changed, "used": sums, "reserved": waits, **part})
    return lines


def charge_analyst(connection: Connection, family: Family, analyst: str, cost: Price, sign: int = 1) -> None:
    """Add `cost` to what the analyst used of the family's budget, or take it back."""
    rows = _analysts(connection, family.account, (analyst,))
    design = family.filter
    before = price_from_json(json.loads(rows[0].used), design.orders) if rows else design.nothing()
    put_analyst(connection, family, analyst, before + cost if sign > 0 else before - cost)


def put_analyst(
    connection: Connection, family: Family, analyst: str, used: Price | None = None, share: str | None = None
) -> None:
    """Write an analyst's row; what is None keeps its value."""
    design = family.filter
    changes = {"used": used and price_text(used, design), "share": share}
    values = {name: value for name, value in changes.items() if value is not None}
    if not connection.execute(_PUT_ANALYST, {"at": family.account, "who": analyst, **values}).rowcount:
        fresh = {"share": None, "used": price_text(design.nothing(), design), **values}
        connection.execute(insert(analyst_table).values(family=family.account, name=analyst, **fresh))


def price_text(figure: Price, design: Filter) -> str:
    """A price as a row holds it."""
    return dumps(price_to_json(figure, design.orders))
