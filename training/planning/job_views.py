"""What the doors show of datasets and jobs: JSON, from the ledger and what is public about a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from accountant.access.grants import ASKING, Access
from accountant.errors import RowsUnavailable, SchemaError, words_of
from accountant.home import Home
from accountant.ledger import evaluations, job_rows
from accountant.ledger.archive import archived
from accountant.ledger.families import block_rows, dataset_sets
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.job_kinds import Contribution, JobKind, kind_of
from accountant.ledger.families.left import FamilyRow, describe_accounts, describe_budget, left
from accountant.ledger.families.records import GIVEN_BACK, HOLDOUT, ISSUED, PUBLIC_STATES, WAITING, Job, State
from accountant.ledger.forecast import about_dataset, forecast
from accountant.ledger.outside import describe_charges
from accountant.ledger.questions import about_jobs, about_reserved
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from models.store.standing import Standing
from models.store.versions import champion_of, versions_by_entry
from training.learners.job_words import TUNING, chosen_to_json
from training.rows.packed.names import schema_file

if TYPE_CHECKING:
    from training.planning import plans
else:
    plans = later("training.planning.plans")  # a list of jobs prices nothing

LAST = 2**53  # above every job's number
UNTAKEN_SECONDS = 20.0  # workers look for jobs several times a second
UNTAKEN = "no worker has taken it, and none is at work: dpserve worker runs what is queued"


def dataset_to_json(
    home: Home,
    dataset: Dataset,
    detail: bool = True,
    works_out: bool = True,
    analyst: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what everybody may know of a dataset: `dpserve dataset show` and GET /v1/datasets/{name}. What is left is
    told under the quotas with which `dataset` was loaded, and of the part kept aside under those of `analyst`.

    `detail`: quotas, charges and the forecast as well. `works_out`: how many jobs of each learner still fit even where
    that takes a second; else `priced` says where nobody has asked for that yet. `facts`: as of `read_facts`, where they
    were read; prices are waited for, and the ledger is not kept open meanwhile.
    """
    registration, budget = dataset.registration, describe_budget(dataset)
    facts = read_facts(home, dataset, detail, analyst) if facts is None else facts
    fits, problem = _what_fits(home, dataset, works_out)
    public_count = {"records": registration.records} if registration.relation == "replace-one" else {}
    return {
        "name": registration.name,
        "uuid": dataset.uuid,
        "family": dataset.family,
        "families": [*dataset.identities],
        "family_names": [*dict.fromkeys(family.name for family in dataset.families)],
        "version": dataset.version,
        "relation": registration.relation.value,
        "unit": registration.unit.name,
        "contributions": registration.unit.contributions,
        **budget["total"],
        **public_count,
        **({"targets": list(registration.targets)} if registration.targets else {}),
        **({} if registration.weight is None else {"weight": registration.weight.to_json()}),
        "schema": registration.schema,
        **({} if registration.query is None else {"query": registration.query.to_json()}),
        **({"refined": [profile.to_json() for profile in registration.refined]} if registration.refined else {}),
        **_blocks(dataset),
        **({} if dataset.person is None else {"person": describe_accounts([dataset.person])}),
        "budget": {**budget, **fits},
        "problem": problem,
        **facts,
    }


def read_facts(home: Home, dataset: Dataset, detail: bool, analyst: str | None) -> dict[str, Any]:
    """Return what the ledger says of a dataset beside its budget, for `dataset_to_json`, from one snapshot."""
    with home.ledger.log.sharing():
        facts = _holdout(home, dataset, analyst)
        if detail:
            name = dataset.registration.name
            home.ledger.log.database.ask(about_dataset(dataset))
            facts |= {"quotas": home.ledger.quotas(dataset), "forecast": forecast(home.ledger, dataset)}
            facts["archived"] = name in archived(home.ledger, "dataset")
            facts["charges"] = describe_charges(home.ledger, dataset)
        return facts


def _what_fits(home: Home, dataset: Dataset, works_out: bool) -> tuple[dict[str, Any], str | None]:
    """Return how many jobs of each learner still fit, and the problem where the schema is not here to tell: it is of
    this dataset alone.
    """
    try:
        jobs = plans.jobs_left(home, dataset) if works_out else plans.known_jobs_left(home, dataset)
    except (RowsUnavailable, SchemaError) as error:
        return {"jobs_left": {}}, words_of(error)
    return {"jobs_left": jobs or {}, **({"priced": False} if jobs is None else {})}, None


def problems_of(home: Home, datasets: Iterable[Dataset]) -> dict[str, str]:
    """Return the problem of each dataset whose folder is not in this home, by name; of no file more than its place is
    looked at.
    """
    problems = {}
    for dataset in datasets:
        try:
            schema_file(home, dataset)
        except RowsUnavailable as error:
            problems[dataset.registration.name] = words_of(error)
    return problems


def _blocks(dataset: Dataset) -> dict[str, Any]:
    """Return the blocks of a dataset that has grown: how many, and each whose rows are there, with its account."""
    if dataset.last is None:
        return {}
    listed = [
        {
            "block": block.number,
            "entry": block.seq,
            **({} if block.period is None else {"period": block.period.to_json()}),
            "spent": decimal_string(family.epsilon_of(family.used)),
            "left": f"{1 - family.share:.6f}",
            "closed_by": None if family.whole is None else family.whole.job,
        }
        for block, family in zip(dataset.blocks, dataset.own, strict=True)
    ]
    return {"blocks": {"last": dataset.last, "dropped": dataset.dropped, "listed": listed}}


def _holdout(home: Home, dataset: Dataset, analyst: str | None) -> dict[str, Any]:
    """Return where rows are kept aside for evaluation: their share, and their own budget of the same total."""
    if dataset.holdout is None:
        return {}
    holdout = home.ledger.dataset(dataset.registration.name, analyst, HOLDOUT)
    budget = describe_budget(holdout, Decimal(0))  # an evaluation's noise is pure
    return {"holdout": {"share": decimal_string(dataset.holdout), "budget": budget}}


def family_to_json(row: FamilyRow, problems: Mapping[str, str]) -> dict[str, Any]:
    """Describe people who share a budget, and the datasets that hold them: GET /v1/families. `problems`: as of
    `problems_of`.
    """
    family, budget = row.family, describe_budget(row.dataset)
    return {
        "name": family.name,
        "family": family.identity,
        "datasets": [*row.names],
        "relation": family.relation.value,
        "unit": family.unit.name,
        **budget["total"],
        "budget": budget,
        "problem": "; ".join(problems[name] for name in row.names if name in problems) or None,
    }


def following(home: Home, seq: int) -> Job | None:
    """Return the evaluation that was reserved together with this job; None where none was."""
    with home.ledger.log.database.reading() as connection:
        return evaluations.following(connection, seq)


Versions: TypeAlias = Mapping[int, tuple[int, Standing]]


def job_to_json(
    home: Home, job: Job, stands: dict[Any, Any] | None = None, versions: Versions | None = None
) -> dict[str, Any]:
    """Return a job as `dpserve train` prints it and GET /v1/jobs/{id} answers it. `stands`: what is left as it was
    worked out for other jobs of the same accounts; `versions`: of its model, where they are known. An issued job has no
    version until that is stored, and champion if it shall be.

    Progress is counted in releases of the plan, or in the public number of runs where a job is tuned.
    """
    entry = home.ledger.reservation(job.seq).value
    home.ledger.log.database.ask(about_reserved(job, entry))
    total, chosen = job.total, {}
    if TUNING in entry["parameters"]:
        from training.tuning.tune import choice_of, runs_of  # loads every learner, and most jobs are not tuned

        total = runs_of(entry["parameters"]) or total
        # a tuned job's setting and its score are released with the model, not before
        chosen = {"chosen": None if job.issued is None else choice_of(home, job.seq)}
    version, state, certificate = None, None, None
    if job.issued is not None:
        statement = str(home.ledger.log.entry(job.issued).value["statement"])
        certificate = {"entry": job.issued, "statement": statement}
        if versions is None:  # while it is placed it is among the models, or not, and may be champion yet
            versions = {} if is_placing(home, job) or not job.model else versions_by_entry(home, job.model)
        version, state = versions.get(job.issued, (None, None))
    then = following(home, job.seq)
    over = job.issued is not None or job.state is State.COMMITTED
    return {
        "job": job.seq,
        "state": job.public_state,
        "progress": {"done": total if over else min(job.done, total), "total": total},
        "dataset": job.dataset,
        "learner": entry["learner"],
        **chosen_to_json(entry["parameters"]),
        **({} if then is None else {"evaluation": {"job": then.seq, "state": then.public_state}}),
        **{name: entry[name] for name in ("target", "part", "whole", "blocks", "window") if name in entry},
        **kind_of(entry).to_json(),
        "epsilon": entry["claim"]["epsilon"],
        "delta": entry["claim"]["delta"],
        "rounds": job.total,
        "left": _left_for(home, job.seq, entry, {} if stands is None else stands),
        "model": job.model,
        "version": version,
        "version_state": state and state.value,
        "promote": "promote" in entry,
        "replaces": champion_of(home, job.model) if "promote" in entry and version is None else None,
        "by": entry["by"],
        "time": entry["time"],
        **chosen,
        "certificate": certificate,
        "waiting": _why_waiting(home, job, entry["time"]) if job.state is State.RESERVED else None,
        "error": _error_of(job, kind_of(entry)),
    }


def _why_waiting(home: Home, job: Job, reserved: str) -> str | None:
    """Say why a reserved job still waits: as a worker left word, or that none has come for it while none is busy."""
    if job.waiting or not job.queued:
        return WAITING.get(job.waiting or "")
    seconds = (datetime.now(UTC) - datetime.fromisoformat(reserved)).total_seconds()
    return UNTAKEN if seconds > UNTAKEN_SECONDS and not home.ledger.is_busy() else None


def _error_of(job: Job, kind: JobKind) -> str | None:
    """Say why nothing came of a job, where that was nobody's wish."""
    if isinstance(kind, Contribution):
        return None
    if job.state is State.BURNED:
        return "the job failed after it had started; its budget is spent"
    return GIVEN_BACK.get(job.waiting or "") if job.state is State.RELEASED else None


def _left_for(home: Home, seq: int, entry: Mapping[str, Any], stands: dict[Any, Any]) -> dict[str, Any]:
    """Say what is left for another job like this one, of whoever asked for it. `stands`: those of other jobs, by what
    they were charged to; this one is added.
    """
    delta = Decimal(0) if kind_of(entry).is_pure else None
    key = entry["dataset"], entry.get("part"), tuple(entry.get("window", ())), entry["by"], delta
    if key not in stands:
        with home.ledger.log.database.reading() as connection:
            charged = block_rows.load_charged(connection, home.ledger.reservation(seq), entry["by"])
        stands[key] = left(charged, delta).to_json()
    answer: dict[str, Any] = stands[key]
    return answer


def is_placing(home: Home, job: Job) -> bool:
    """Return whether what an issued job released is being stored here this moment, or waits for a worker that does."""
    return job.issued is not None and (home.jobs / str(job.seq)).exists()


def jobs_to_json(
    home: Home,
    dataset: str | None = None,
    state: str | None = None,
    after: int | None = None,
    limit: int = 50,
    access: Access | None = None,
) -> dict[str, Any]:
    """Return a page of jobs, the newest first (GET /v1/jobs). `after`: the `next` of the page before; None on the last
    one. `access`: only what may be seen by it.

    UnknownName where there is no such dataset; InputError where there is no such state.
    """
    if state is not None and state not in PUBLIC_STATES:
        raise InputError(f"state={state[:40]!r}: must be one of {', '.join((*State, ISSUED))}")
    if dataset is not None and (access is None or access.may(*ASKING, "audit", "steward", dataset=dataset)):
        home.ledger.dataset(dataset)  # to all others an unknown name is as one that they may not see
    kind = None if state is None else State.COMMITTED if state == ISSUED else State(state)
    issued = state == ISSUED if kind is State.COMMITTED else None
    database = home.ledger.log.database
    with database.sharing(), database.reading(about_jobs()) as connection:
        sees_all = access is None or access.seen_jobs(()) is None
        visible = None if sees_all or access is None else access.seen_jobs(dataset_sets.dataset_names(database))
        jobs = home.ledger.page_of_jobs(dataset, kind, issued, LAST if after is None else after, limit + 1, visible)
        page, has_more = jobs[:limit], len(jobs) > limit
        job_rows.read_in_sets(connection, page)
        stands: dict[Any, Any] = {}  # of most jobs the same
        placing = {job.seq for job in page if is_placing(home, job)}  # asked before it is looked where each is
        issuing = {job.model for job in page if job.issued and job.model}
        versions = {name: versions_by_entry(home, name) for name in issuing}
        job_versions = [{} if job.seq in placing else versions.get(job.model) for job in page]
        listed = [job_to_json(home, job, stands, entries) for job, entries in zip(page, job_versions, strict=True)]
        return {"jobs": listed, "next": page[-1].seq if has_more else None}
