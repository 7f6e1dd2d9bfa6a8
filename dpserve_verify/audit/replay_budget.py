"""The budgets as the entries leave them: families, their datasets, quotas, and who used how much. For the audit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import floor
from typing import Any
from uuid import UUID, uuid5

from dpserve_verify.audit.judge import Account, Value, judge_filter, read_budget, spelt
from dpserve_verify.audit.replay_blocks import Blocks, judge_reading, merge_equal_blocks
from dpserve_verify.entries.budgets import QuotaSet
from dpserve_verify.entries.datasets import DatasetWithdrawn, require_bounded
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.budget import NANO, Budget, Relation, from_nano, nano, parse_relation
from dpserve_verify.privacy.filter import Filter
from dpserve_verify.privacy.second_opinion import to_epsilon
from dpserve_verify.privacy.soundness import Figures, require
from dpserve_verify.privacy.weights import PARTS, Weight, relation_fault

EVERYBODY = "*"
_OWNER = {"name": "owner", "column": None, "contributions": 1}


@dataclass(slots=True)
class FamilyState:
    """A family as its entries leave it. `criteria`: (order, cap in nano-units). `analysts`: what each has used.
    `largest`: total epsilon ever in force; `whole`: the job that took the whole total, and its claim; `family`: of a
    block's account, whose total and quotas it has; `aside`: it is of units that are kept aside; `person`: of one person
    over all blocks, with a total of its own.
    """

    seq: int
    relation: Relation
    unit: str
    design: Filter
    criteria: tuple[tuple[Decimal, int], ...]
    used: Figures
    reserved: Figures
    largest: Decimal
    changed: int | None = None
    whole: tuple[int, Decimal] | None = None
    quotas: dict[str, Decimal] = field(default_factory=dict)
    analysts: dict[str, Figures] = field(default_factory=dict)
    family: str | None = None
    aside: bool = False
    person: bool = False

    @property
    def budget(self) -> Budget:
        """Return the total (epsilon, delta) that its newest entry gives it."""
        return self.design.budget

    def nothing(self) -> Figures:
        """Return a price of zero, with a figure for each of the family's criteria."""
        return Figures(0, 0, (0,) * len(self.criteria))

    def stored(self, figures: Figures) -> dict[str, Any]:
        """Return a price as rows and entries spell it."""
        orders = (order for order, _ in self.criteria)
        rdp = {decimal_string(order): spelt(figure) for order, figure in zip(orders, figures.rdp, strict=True)}
        return {"pure": spelt(figures.pure), "unbounded": figures.unbounded, "rdp": rdp}

    def sums(self) -> dict[str, Any]:
        """Return what the family has used, and the job that took the whole, as its row spells it."""
        return self.stored(self.used) | ({"whole": self.whole[0]} if self.whole else {})

    def within(self, used: Figures) -> bool:
        """Return whether the total in force admits these sums."""
        return _within(used, nano(self.budget.epsilon), [cap for _, cap in self.criteria])

    def require_open(self) -> None:
        """Raise LedgerInvalid unless the family is open and its sums are within the total."""
        if self.whole is not None:
            raise LedgerInvalid(f"admission: the family was closed by job {self.whole[0]}, which took the whole total")
        require(self.within(self.used), f"admission: the family's budget {self.budget.epsilon} is exceeded")

    def require_room(self, by: str, share: Decimal | None) -> None:
        """Raise LedgerInvalid unless there is room, in the total and in the analyst's quota, which is a `share` of it.
        Shares scale caps, rounded down.
        """
        self.require_open()
        total = nano(self.budget.epsilon)
        if share is not None:
            part = max(1, floor(total * share)), [floor(cap * share) for _, cap in self.criteria]
            require(_within(self.analysts[by], *part), f"admission: the quota {share} of {by:.80} is exceeded")


def _within(used: Figures, pure: int, caps: Sequence[int]) -> bool:
    pure_fits = not used.unbounded and used.pure <= pure
    return pure_fits or any(figure <= cap for figure, cap in zip(used.rdp, caps, strict=True))


@dataclass(slots=True)
class DatasetState:
    """A dataset as its entry leaves it. `orders`: all that one of its families adds up, which a price must state; they
    stay whatever becomes of the budgets. `targets`: where it has several, what a job may be about. `remote`: the rows
    stay with owners, who are the units and report, or with so many `institutions`; `shared`: owners send shares, to two
    aggregators. `held`: the accounts of the
    units that its families keep aside, beside those of the others, `families`; empty where none are. `promised`: the
    total for one person over all blocks, whose accounts, for either part, are `people`. `relation`, `contributions`:
    who neighbours are, and how many rows one unit may have.
    """

    seq: int
    uuid: str
    families: tuple[str, ...]
    orders: tuple[Decimal, ...]
    records: int
    commitment: str
    targets: tuple[str, ...] = ()
    remote: bool = False
    shared: bool = False
    held: tuple[str, ...] = ()
    promised: Budget | None = None
    people: tuple[str, ...] = ()
    institutions: int | None = None
    relation: Relation = Relation.ADD_REMOVE
    contributions: int = 1
    parts: int = 1


@dataclass
class Books:
    """Families and datasets by identity and name. `held`: of a family that keeps units aside, their account, which
    stands among the families: parallel composition, docs/privacy/rows.md.
    """

    families: dict[str, FamilyState] = field(default_factory=dict)
    datasets: dict[str, DatasetState] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    blocks: Blocks = field(default_factory=Blocks)
    _once: set[str] = field(default_factory=set)
    _names: dict[str, str] = field(default_factory=dict)

    def judge_registered(self, seq: int, value: Value) -> None:
        """Judge `dataset-registered`: a dataset that founds a family with its total."""
        relation, unit = self._rows(value)
        budget = read_budget(value["budget"])
        budget.check_delta(value["records"])
        criteria = judge_filter(budget, value["filter"])
        require(value["family"] == value["uuid"], "family: must be the dataset's own")
        for field_name, text in value.get("new_people", {}).items():
            is_line = len(text) <= 200 and text.isprintable()
            require(is_line, f"{field_name}: must be 1 to 200 printable characters", "bad_input")
        called = value.get("family_name", value["dataset"])
        require("family_name" not in value or called != value["dataset"], "family_name: is the dataset's, and needless")
        taken = f"family={called}: is another family's name; give one with --family-name"
        require(called not in self._names, taken, "name_taken", family=called)
        self._names[called] = value["uuid"]
        nothing = Figures(0, 0, (0,) * len(criteria))
        state = FamilyState(seq, relation, unit, Filter.design(budget), criteria, nothing, nothing, budget.epsilon)
        self.families[value["uuid"]] = state
        if "holdout" in value:
            share = parse_decimal(value["holdout"])
            require(0 < share < 1 and decimal_string(share) == value["holdout"], "holdout: must be above 0 and below 1")
            require(relation is Relation.ADD_REMOVE, "holdout: needs add-remove")
            account = str(uuid5(UUID(value["uuid"]), "holdout"))
            self.held[value["uuid"]] = account
            self.families[account] = replace(state, quotas={}, analysts={}, aside=True)
        self._enter(seq, value, (value["uuid"],))

    def judge_joined(self, seq: int, value: Value) -> None:
        """Judge `dataset-joined`: further rows about the people of families that stand before."""
        relation, unit = self._rows(value)
        families = value["families"]
        require(len(set(families)) == len(families), "families: must be distinct")
        for identity in families:
            self._require_alone(identity)
        parted = any(identity in self.held for identity in families)
        require_bounded(len(families) > 1, parted, value["unit"]["column"] is not None)
        for identity in families:
            family = self.family(identity)
            add_remove = (
                "relation=replace-one: datasets of one family may differ in which people they hold, and then replacing "
                "one changes a count that replace-one makes public; families need add-remove"
            )
            require(family.relation is Relation.ADD_REMOVE, add_remove, "bad_input")
            family.budget.check_delta(value["records"])
            related = f"relation={relation.value}: the family's is {family.relation.value}"
            require(relation is family.relation, related, "bad_input")
            protects = f"unit={unit}: the family's unit of privacy is the {family.unit}"
            require(unit == family.unit, protects, "bad_input")
        self._enter(seq, value, tuple(families))

    def _require_alone(self, identity: str) -> None:
        """Raise InputError where the dataset that founded a family grows: nobody joins it."""
        for name, dataset in self.datasets.items():
            if dataset.uuid != identity:
                continue
            grows = (
                f"family: dataset {name} grows by blocks, and rows of another dataset would be of no block; append "
                f"them (dpserve dataset append {name}), or say that the people are new"
            )
            require(name not in self.blocks.known, grows, "bad_input")
            apart = (
                f"family: of dataset {name} one person has a total over all blocks, and rows of another dataset would "
                f"be bounded apart from them; append them (dpserve dataset append {name}), or say that they are new"
            )
            require(dataset.promised is None, apart, "bad_input")

    def _rows(self, value: Value) -> tuple[Relation, str]:
        name, unit = value["dataset"], value["unit"]
        again = f"dataset={name}: is registered already; a budget is given once"
        require(name not in self.datasets, again, "name_taken", dataset=name)
        require(value["uuid"] not in self._once, f"uuid={value['uuid']:.80}: came before")
        self._require_new_rows(value["commitment"])
        contributions, relation = unit["contributions"], parse_relation(value["relation"])
        several = (
            f"contributions={contributions}: must be 1 under replace-one, where the number of rows is public: another "
            "person may bring another number"
        )
        require(contributions == 1 or relation is Relation.ADD_REMOVE, several, "bad_input")
        targets = value.get("targets", [])
        require(len(set(targets)) == len(targets), "targets: must be two or more names, each once")
        require("firsts" not in value or contributions > 1, "firsts: needs more than one row of a person")
        if "weight" in value:
            Weight.from_json(value["weight"])
            fault = relation_fault(relation)
            require(fault is None and "institutions" not in value, fault or "weight: not of institutions", "bad_input")
        judge_reading(value)
        return relation, unit["name"]

    def _require_new_rows(self, commitment: str) -> None:
        """Raise InputError where these rows are registered already: under two names they would have two budgets."""
        if commitment not in self._once:
            return
        names = [name for name, dataset in self.datasets.items() if dataset.commitment == commitment]
        name = names[0] if names else self.blocks.name_of(commitment)
        require(False, f"data: these rows are registered already, as {name}", "name_taken", dataset=name)

    def _enter(self, seq: int, value: Value, families: tuple[str, ...]) -> None:
        self._once |= {value["uuid"], value["commitment"]}
        orders = {order for identity in families for order, _ in self.families[identity].criteria}
        who = (value["uuid"], families, tuple(sorted(orders)))
        of_owners, institutions = value["unit"] == _OWNER, value.get("institutions")
        shared = of_owners and value["relation"] == Relation.ADD_REMOVE
        pure = not any(self.family(identity).budget.delta for identity in families)
        require(not of_owners or pure != shared, "relation: owners need replace-one for reports, add-remove for shares")
        if institutions is not None:
            sound = not of_owners and not pure and value["relation"] == Relation.ADD_REMOVE
            require(sound, "institutions: must be a number from 1, of records or persons, with add-remove and a delta")
        remote = of_owners or institutions is not None
        about = (value["records"], value["commitment"], tuple(value.get("targets", ())))
        holdouts = tuple(self.held[identity] for identity in families if identity in self.held)
        person = read_budget(value["person"]) if "person" in value else None
        self.datasets[value["dataset"]] = DatasetState(
            seq,
            *who,
            *about,
            remote,
            shared,
            holdouts,
            person,
            institutions=institutions,
            relation=parse_relation(value["relation"]),
            contributions=value["unit"]["contributions"],
            parts=PARTS if "weight" in value else 1,
        )

    def withdraw(self, form: DatasetWithdrawn) -> None:
        """Take out a dataset that nothing holds to, with the family that it founded: its name and its rows may come
        again.
        """
        name, registered = form.dataset, form.registered
        dataset = self.datasets[name]
        require(registered == dataset.seq, f"registered={registered!r:.40}: must be entry {dataset.seq}")
        del self.datasets[name]
        self.blocks.known.pop(name, None)
        self._once.discard(dataset.commitment)
        if dataset.families == (dataset.uuid,):
            for account in (dataset.uuid, *dataset.held, *dataset.people):
                family = self.families.pop(account)
                require(family.used == family.nothing(), "dataset: something of its budget is used")
            self.held.pop(dataset.uuid, None)
            for called in [called for called, identity in self._names.items() if identity == dataset.uuid]:
                del self._names[called]

    def judge_appended(self, seq: int, value: Value) -> None:
        """Judge `dataset-appended`: rows of units who are in this block, with an account of the family's total."""
        dataset = self.growing(value["dataset"])
        family = self.family(dataset.uuid)
        self._require_new_rows(value["commitment"])
        bounded = bool(dataset.people) if family.unit == "person" else None
        block = self.blocks.judge_appended(seq, value, dataset.uuid, bool(dataset.held), bounded)
        family.budget.check_delta(value["records"])
        self._once.add(value["commitment"])
        nothing = family.nothing()
        account = replace(
            family,
            seq=seq,
            used=nothing,
            reserved=nothing,
            changed=None,
            whole=None,
            quotas={},
            analysts={},
            family=dataset.uuid,
        )
        self.families[block.own] = account
        if block.held is not None:
            self.families[block.held] = replace(account, quotas={}, analysts={}, aside=True)

    def growing(self, name: str) -> DatasetState:
        """Return a dataset that may get a block. InputError says why it cannot."""
        dataset = self.dataset(name)
        remote = f"dataset={name}: its rows stay with their owners; blocks are of rows that are registered"
        require(not dataset.remote, remote, "bad_input")
        replaced = (
            f"dataset={name}: blocks need add-remove: under replace-one a replaced unit may leave one block and enter "
            "another, and how many rows each has would be public"
        )
        require(dataset.relation is Relation.ADD_REMOVE, replaced, "bad_input")
        others = [each for each, state in self.datasets.items() if not {*state.families}.isdisjoint(dataset.families)]
        shared = (
            f"dataset={name}: shares its family with other datasets, whose rows are of no block: register a dataset of "
            "its own, which grows"
        )
        require(others == [name] and self.datasets[name].families == (dataset.uuid,), shared, "bad_input")
        return self.datasets[name]

    def judge_budget_changed(self, seq: int, value: Value) -> None:
        """Judge `budget-changed`: another total at the same delta, orders and weights; what was spent stays."""
        family, budget = self.family(value["family"]), read_budget(value["budget"])
        stays = (budget.delta, budget.outside) == (family.budget.delta, family.budget.outside)
        require(stays, "budget: delta must stay as it was, and what is set apart of it")
        design = family.design.with_total(budget.epsilon)
        require(value["filter"] == design.to_json(), "filter: is not the one that the budget gives")
        for line in design.criteria:
            order, delta = float(line.order), float(budget.delta * line.weight)
            sound = line.cap == 0 or to_epsilon(order, line.cap / NANO, delta) <= float(budget.epsilon)
            require(sound, f"filter: the cap at order {line.order} exceeds the budget")
        largest = max(family.largest, budget.epsilon)
        require(value["largest"] == decimal_string(largest), f"largest: must be {largest}")
        of_blocks = [
            account for account in self.families.values() if account.family == value["family"] and not account.person
        ]
        for account in (*self.accounts_of(value["family"]), *of_blocks):
            account.design, account.largest = design, largest
            account.changed = seq if account.family is None else None  # a block's total is that of its family
            account.criteria = tuple((line.order, line.cap) for line in design.criteria)
        self.judge_after(value, filter(None, (value["family"], self.held.get(value["family"]))))

    def judge_after(
        self, value: Value, accounts: Iterable[str], by: str | None = None, window: tuple[int, int] | None = None
    ) -> None:
        """Check that what an entry says of accounts after it is what they have used, what of it has not begun, and what
        was used `by` whom it charges. Of a `window` of blocks those that stand alike have one line.
        """
        lines: list[dict[str, Any]] = []
        for identity in accounts:
            account = self.families[identity]
            line: dict[str, Any] = {"family": account.seq, "changed": account.changed, "used": account.sums()}
            line |= {"reserved": account.stored(account.reserved)}
            line |= ({"part": "holdout"} if account.aside else {}) | ({"person": True} if account.person else {})
            line |= {} if by is None else {"analyst": {"name": by, "used": account.stored(account.analysts[by])}}
            lines.append(line)
        lines = lines if window is None else merge_equal_blocks(lines)
        if value["after"] != lines:
            raise LedgerInvalid(f"after: is not what the entries before it give, {lines}")

    def judge_quota_set(self, form: QuotaSet) -> None:
        """Judge `quota-set`: how much of a family's budget one analyst may use, or everybody else."""
        share = parse_decimal(form.share)
        self.family(form.family)
        require(0 < share <= 1, f"share={share}: must be above 0 and at most 1")
        require(decimal_string(share) == form.share, "share: must be in its one spelling")
        for account in self.accounts_of(form.family):
            account.quotas[form.analyst] = share
            account.analysts.setdefault(form.analyst, account.nothing())

    def family(self, identity: Any) -> FamilyState:
        """Return the family of this identity. LedgerInvalid where no entry founded one."""
        family = self.families.get(identity)
        is_family = family is not None and not family.aside and family.family is None
        require(is_family, f"family={identity!r:.80}: was never founded")
        return self.families[identity]

    def accounts_of(self, identity: str) -> list[FamilyState]:
        """Return the family's account, and that of the units it keeps aside."""
        return [self.families[account] for account in (identity, self.held.get(identity)) if account is not None]

    def has_family(self, name: str) -> bool:
        """Return whether an entry founded a family of this name."""
        return name in self._names

    def family_names(self, dataset: Any) -> list[str]:
        """Return what the families of a dataset are called. LedgerInvalid where no entry registered one."""
        identities = self.dataset(dataset).families
        return [name for name, identity in self._names.items() if identity in identities]

    def dataset(self, name: Any, part: Any = None, window: tuple[int, int] | None = None) -> DatasetState:
        """Return the dataset of this name, with the accounts of a part, and of a window of its blocks. LedgerInvalid
        where no entry registered one, or where it has no such part.
        """
        require(name in self.datasets, f"dataset={name}: no such dataset", "unknown_name", dataset=name)
        dataset = self.datasets[name]
        has = part is None or (part == "holdout" and bool(dataset.held))
        require(has, f"part={part!r:.40}: the dataset has no such part")
        families, records = dataset.families if part is None else dataset.held, dataset.records
        require(dataset.promised is None or bool(dataset.people), "person-total: must follow the dataset's entry")
        if window is not None:
            families, records = self.blocks.of(name, window, families, records, part is not None)
        if part is None and window is None and not dataset.people:
            return dataset
        return replace(dataset, families=(*families, *dataset.people[part is not None :][:1]), records=records)

    def of(self, dataset: DatasetState) -> list[FamilyState]:
        """Return the families whose budgets a job on this dataset is charged to."""
        return [self.families[identity] for identity in dataset.families]

    def accounts(
        self, name: str, part: str | None = None, window: tuple[int, int] | None = None
    ) -> tuple[Account, ...]:
        """Return how the budgets stand that jobs on this part of the dataset are charged to. The sums are converted by
        the definitions: each figure at its own share of delta.
        """
        accounts = []
        for identity in self.dataset(name, part, window).families:
            family = self.families[identity]
            used, total = family.used, family.budget
            rdp = tuple((order, figure) for (order, _), figure in zip(family.criteria, used.rdp, strict=True))
            epsilons = [] if used.unbounded else [from_nano(used.pure)]
            epsilons += [total.epsilon] if family.within(used) else []
            for line, figure in zip(family.design.criteria, used.rdp, strict=True):
                epsilon = to_epsilon(float(line.order), figure / NANO, float(total.delta * line.weight))
                epsilons.append(Decimal(max(0.0, epsilon)))
            epsilons = epsilons if family.whole is None else [family.whole[1]]
            who = family.family or identity, total, family.largest
            accounts.append(Account(*who, used, rdp, min(epsilons), family.whole is not None, family.person))
        return tuple(accounts)

    def reserve(
        self,
        dataset: DatasetState,
        by: str,
        costs: Iterable[Figures],
        whole: tuple[int, Decimal, Decimal] | None = None,
    ) -> None:
        """Charge each family, and who asks; nobody may be over what they have. `whole`: the job and its claim, of one
        that takes the whole of every total, which it may only where it would not fit else.
        """
        fits = True
        for family, cost in zip(self.of(dataset), costs, strict=True):
            taken = None if family.person else whole
            quotas = self.families[family.family].quotas if family.family else family.quotas  # of a block: its family's
            share = quotas.get(by, quotas.get(EVERYBODY))
            if taken is not None:
                require(family.sums() == family.stored(family.nothing()), "whole: the family must be untouched")
                small = taken[1] <= family.budget.epsilon and taken[2] <= family.budget.delta
                require(small, f"whole: epsilon {taken[1]} is above the family's total {family.budget.epsilon}")
                require(share in (None, 1), f"whole: the quota {share} of {by:.80} is exceeded")
            family.used, family.reserved = family.used.plus(cost), family.reserved.plus(cost)
            family.analysts[by] = family.analysts.get(by, family.nothing()).plus(cost)
            if taken is None:
                family.require_room(by, share)
            else:
                fits, family.whole = fits and family.within(family.used), taken[:2]
        require(whole is None or not fits, "whole: the job fits beside others")

    def start(self, dataset: DatasetState, costs: Iterable[Figures]) -> None:
        """Record the start of a job: its price is reserved no more and stays used. It must fit into the totals that are
        now in force, with the jobs that began before it.
        """
        for family, cost in zip(self.of(dataset), costs, strict=True):
            family.reserved = family.reserved.plus(cost, -1)
            if family.whole is not None:
                fits = family.whole[1] <= family.budget.epsilon
            else:
                fits = family.within(family.used.plus(family.reserved, -1))
            require(fits, f"start: the family's budget {family.budget.epsilon}, lowered since, is exceeded")

    def release(self, dataset: DatasetState, by: str, costs: Iterable[Figures]) -> None:
        """Record the release of a job that never began: its price leaves the sums of its family and its analyst. If it
        had taken the whole, the family is open again.
        """
        for family, cost in zip(self.of(dataset), costs, strict=True):
            family.used, family.reserved = family.used.plus(cost, -1), family.reserved.plus(cost, -1)
            family.analysts[by], family.whole = family.analysts[by].plus(cost, -1), None

    def split(self, dataset: DatasetState, cost: Figures) -> tuple[Figures, ...]:
        """Return a price at all orders, as each family adds it up."""
        families = self.of(dataset)
        if len(families) == 1:
            return (cost,)
        at = dict(zip(dataset.orders, cost.rdp, strict=True))
        return tuple(replace(cost, rdp=tuple(at[order] for order, _ in family.criteria)) for family in families)


def costs_of(costs: tuple[Figures, ...], dataset: DatasetState) -> tuple[Figures, ...]:
    """Return the price of a job in each account that bears it: one that was reserved before there was a total for one
    person bears it there as well, at the family's orders.
    """
    return (*costs, *costs[:1] * (len(dataset.families) - len(costs)))
