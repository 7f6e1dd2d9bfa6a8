"""Datasets, the families that share their budgets, and what is left of these, for who has to do with them."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from accountant.ledger.archive import archived
from accountant.system.lazy_import import later
from serving.http.rights import LISTED, READS, seen_datasets, seen_families
from serving.operations import Caller, operation
from serving.operations.answers import Body, shape
from serving.wire.list_parts import Part, cut_datasets, cut_families
from training.planning.job_views import dataset_to_json, family_to_json, problems_of, read_facts

if TYPE_CHECKING:
    from serving.wire import work_time
    from training.rows.schema import described
else:
    work_time = later("serving.wire.work_time")  # a list in a home loads no server
    described = later("training.rows.schema.described")  # nor a schema


@operation("GET", "/v1/datasets", *READS, on=LISTED, needs_prices=True, has_archive=True)
def list_datasets(caller: Caller, part: Part) -> Annotated[Body, shape("DATASETS")]:
    """List datasets and their budgets.

    A server says how many jobs still fit where that is known within `work_time.PRICES_SECONDS`.
    """
    home, asker = caller.home, caller.principal
    end = inf if caller.is_here else monotonic() + work_time.PRICES_SECONDS
    with home.ledger.log.sharing():
        hidden, datasets = archived(home.ledger, "dataset"), home.ledger.datasets(asker)
        wanted, following = cut_datasets(part, seen_datasets(caller.rights, datasets), hidden)
        facts = [read_facts(home, each, False, asker) for each in wanted]
    described = [
        dataset_to_json(home, each, works_out=monotonic() < end, facts=said)
        for each, said in zip(wanted, facts, strict=True)
    ]
    return {"datasets": described, "next": following}


@operation("GET", "/v1/families", *READS, on=LISTED, has_archive=True)
def list_families(caller: Caller, part: Part) -> Annotated[Body, shape("FAMILIES")]:
    """List families of which the caller may see a dataset, with these datasets and the budget that they share."""
    home = caller.home
    datasets = home.ledger.datasets(caller.principal)
    visible = seen_families(caller.rights, datasets)
    rows, following = cut_families(part, visible, archived(home.ledger, "dataset"))
    problems = problems_of(home, datasets)
    return {"families": [family_to_json(row, problems) for row in rows], "next": following}


@operation("GET", "/v1/datasets/{name}", *READS, needs_prices=True)
def show_dataset(caller: Caller, name: str) -> Annotated[Body, shape("DATASET")]:
    """Show a dataset, its columns as its public schema has them, its budget, quotas, and how many jobs still fit."""
    home, asker = caller.home, caller.principal
    with home.ledger.log.sharing():
        dataset = home.ledger.dataset(name, asker)
        facts = read_facts(home, dataset, True, asker)
    return {**dataset_to_json(home, dataset, facts=facts), "columns": described.describe_columns(home, dataset)}


OPERATIONS = (list_datasets, list_families, show_dataset)
