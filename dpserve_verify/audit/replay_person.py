"""The total for one person over all blocks, as its entry founds it. Judged apart from the code that wrote it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid5

from dpserve_verify.audit.judge import Value, judge_filter, read_budget
from dpserve_verify.audit.replay_budget import Books, FamilyState
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.filter import Filter
from dpserve_verify.privacy.soundness import Figures, require


def person_total(books: Books, seq: int, value: Value) -> None:
    """Judge `person-total`: the entry behind that of the dataset which says that there is one, of which nothing is used
    yet; or one that carries on what was used before it.
    """
    if "carried" in value:
        _later_total(books, seq, value)
        return
    dataset = books.datasets.get(value["dataset"])
    require(dataset is not None and dataset.seq == seq - 1, "dataset: must be the one that was registered just before")
    assert dataset is not None
    budget, family = read_budget(value["budget"]), books.family(value["family"])
    require(value["family"] == dataset.uuid, "family: must be the one that the dataset founded")
    require(budget == dataset.promised, "budget: must be that of the dataset's entry")
    budget.check_delta(dataset.records)
    require(budget.epsilon >= family.budget.epsilon, "budget: must not be below that of a block")
    require(family.relation is Relation.ADD_REMOVE and family.unit == "person", "dataset: has no column of persons")
    criteria = judge_filter(budget, value["filter"])
    nothing = Figures(0, 0, (0,) * len(criteria))
    design, account = Filter.design(budget), str(uuid5(UUID(dataset.uuid), "person"))
    state = FamilyState(
        seq, family.relation, family.unit, design, criteria, nothing, nothing, budget.epsilon,
        quotas={}, family=dataset.uuid, person=True,
    )  # fmt: skip
    accounts = {account: state}
    if dataset.held:
        accounts[str(uuid5(UUID(account), "holdout"))] = replace(state, quotas={}, analysts={}, aside=True)
    books.families |= accounts
    orders = {*dataset.orders, *(order for order, _ in criteria)}
    books.datasets[value["dataset"]] = replace(dataset, orders=tuple(sorted(orders)), people=tuple(accounts))


def _later_total(books: Books, seq: int, value: Value) -> None:
    """Judge a total that is founded when a dataset grows first, or changed later: it has used what the account before
    it has, and is another than the family's only with a reason.
    """
    dataset = books.growing(value["dataset"])
    budget, family = read_budget(value["budget"]), books.family(value["family"])
    require(value["family"] == dataset.uuid, "family: must be the one that the dataset founded")
    declared = f"dataset={value['dataset']}: its total for one person was declared at registration, and stays"
    require(dataset.promised is None, declared, "bad_input")
    require(family.unit == "person", "dataset: has no column of persons")
    fresh = not books.blocks.has_grown(value["dataset"])
    require(bool(dataset.people) or fresh, "dataset: has grown without a total")
    stays = (budget.delta, budget.outside) == (family.budget.delta, family.budget.outside)
    require(stays, "budget: delta must be the family's, and what is set apart of it")
    require(("by" in value) == ("reason" in value), "by: must stand beside the reason, and nowhere else")
    founded = not dataset.people and budget.epsilon == family.budget.epsilon
    above = bool(dataset.people) or budget.epsilon >= family.budget.epsilon
    below = f"person-epsilon={budget.epsilon}: must be at least the total of a block, {family.budget.epsilon}"
    require(above, below, "bad_input")
    unsaid = f"person-epsilon={budget.epsilon}: is another than the family's total; say why (--reason)"
    require(founded or "reason" in value, unsaid, "bad_input")
    design = family.design.with_total(budget.epsilon)
    require(value["filter"] == design.to_json(), "filter: is not the one that the budget gives")
    names = [dataset.uuid, *dataset.held]
    before = [books.families[name] for name in dataset.people or names]
    largest = max(budget.epsilon, *(account.largest for account in before))
    require(value["largest"] == decimal_string(largest), f"largest: must be {largest}")
    identity = str(uuid5(UUID(dataset.uuid), "person"))
    people = (identity, str(uuid5(UUID(identity), "holdout")))[: len(names)]
    carried = []
    for name, account in zip(people, before, strict=True):
        total_claim = account.whole if budget == account.budget else None
        analysts = {who: used for who, used in account.analysts.items() if used != account.nothing()}
        state = replace(
            account, seq=seq, design=design, criteria=tuple((line.order, line.cap) for line in design.criteria),
            largest=largest, changed=None, whole=total_claim, quotas={}, analysts=analysts,
            family=dataset.uuid, person=True,
        )  # fmt: skip
        books.families[name] = state
        spent = {who: state.stored(used) for who, used in analysts.items()}
        carried.append({"used": state.sums(), "reserved": state.stored(state.reserved), "analysts": spent})
    require(value["carried"] == carried, "carried: is not what was used before")
    books.datasets[value["dataset"]] = replace(dataset, people=people)
