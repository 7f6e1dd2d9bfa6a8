"""The total for one person over all blocks, as its entry founds it. Judged apart from the code that wrote it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid5

from accountant.audit.judge import Value, judge_filter, read_budget
from accountant.audit.replay_budget import Books, FamilyState
from accountant.budget import Relation
from accountant.privacy.filter import Filter
from accountant.privacy.soundness import Figures, require


def person_total(books: Books, seq: int, value: Value) -> None:
    """`person-total`: the entry behind that of the dataset which says that there is one; nothing is used of it yet."""
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
    design, own = Filter.design(budget), str(uuid5(UUID(dataset.uuid), "person"))
    state = FamilyState(
        seq, family.relation, family.unit, design, criteria, nothing, nothing, budget.epsilon,
        quotas=family.quotas, family=dataset.uuid, person=True,
    )  # fmt: skip
    accounts = {own: state}
    if dataset.held:
        accounts[str(uuid5(UUID(own), "holdout"))] = replace(state, analysts={}, aside=True)
    books.families |= accounts
    orders = {*dataset.orders, *(order for order, _ in criteria)}
    books.datasets[value["dataset"]] = replace(dataset, orders=tuple(sorted(orders)), people=tuple(accounts))
