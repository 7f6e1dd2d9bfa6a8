"""The ledger: who may spend what on which dataset. Every admission is one transaction that checks and appends.

States of a job: RESERVED -> STARTED -> COMMITTED | BURNED, and RESERVED -> RELEASED. STARTED is written before any
row can be read; from then on the full price stays, on success, crash or cancel. Only a reservation that never started
is given back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, select, update

from accountant.errors import UnknownName, WrongState
from accountant.keys import key_rows
from accountant.keys.private_keys import KeyStore
from accountant.ledger import derived_entries, evaluations, family_changes, job_rows, learner_admissions, questions
from accountant.ledger.admission import price_job, reserve
from accountant.ledger.families import block_rows, dataset_sets, family_rows
from accountant.ledger.families.families import Dataset, Started
from accountant.ledger.families.family_rows import after, member, quotas
from accountant.ledger.families.job_kinds import Evaluation
from accountant.ledger.families.records import (
    HOLDOUT,
    UNKNOWN_ROWS,
    Holding,
    Job,
    NotCommitted,
    Registration,
    Request,
    SeenJobs,
    State,
    Why,
    request_from_entry,
)
from accountant.ledger.families.refusal import outgrown_refusal
from accountant.ledger.families.windows import Window
from accountant.ledger.job_rows import find_job, job_of, read_job, require_state
from accountant.ledger.made_from import with_sources
from accountant.ledger.person_totals import change_person_total
from accountant.ledger.schedules import Period
from accountant.log.entries import TransparencyLog, Writer
from accountant.log.last_seen import HighWater
from accountant.store import engines
from accountant.store.queries import LATER, Queries, rows_of
from accountant.store.store import Store, body_at
from accountant.store.tables import job_table
from dpserve_verify.errors import DpserveError, LedgerInvalid
from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.formats.merkle import EMPTY_ROOT, leaf_hash
from dpserve_verify.keys.trust import public_pem
from dpserve_verify.log.entry import Entry, read_entry
from dpserve_verify.privacy.budget import check_key
from dpserve_verify.privacy.events import Plan, plan_from_json

FORMAT = "dpserve-ledger/v1"

# Built once: building a statement costs more than running it. A parameter that is a column's name is a value to set.
_SET_JOB = update(job_table).where(job_table.c.seq == bindparam("at")).execution_options(**LATER)


class Ledger:
    """All that is spent, and the only door to spending. Safe to use from any number of processes."""

    def __init__(self, log: TransparencyLog) -> None:
        self.log = log

    @classmethod
    def create(cls, url: str, keys: KeyStore, mark: Path, origin: str) -> Ledger:
        """Create a ledger whose first entry names its keys. Refuses a database that has entries."""
        database = Store(url)
        database.create()
        log = TransparencyLog(database, keys, origin, HighWater(mark))
        HighWater(mark).advance(0, EMPTY_ROOT)  # a start cut after the first entry still finds a mark
        issuer, log_pem = public_pem(keys.public_key("issuer")), public_pem(keys.public_key("log"))
        with log.writing() as writer:
            if log.size():
                raise LedgerInvalid(
                    "ledger: the database is not empty, but its keys are new; restore the keys it was signed with"
                )
            writer.append("genesis", format=FORMAT, origin=origin, issuer=issuer, log=log_pem)
        return cls(log)

    def register(self, registration: Registration, compared: Collection[str] | None = None) -> Dataset:
        """Admit a dataset: with a total budget of its own, or into the families of others.

        Raises:
            CameBetween: a dataset outside of its families is not among those it was `compared` with, where given.
            NameTaken: the name is in use, or the rows are registered under another one.
            InputError: name, unit, relation, delta and families do not go together.
            UnknownName: a dataset whose families it would join.
        """
        with self.log.writing() as writer:
            family_changes.register(writer, registration, compared)
        return self.dataset(registration.name)

    def check_registration(self, registration: Registration) -> None:
        """Raise what `register` would, whatever the rows are: it is done, and not committed."""
        with suppress(NotCommitted), self.log.writing() as writer:
            family_changes.register(writer, replace(registration, commitment=UNKNOWN_ROWS))
            raise NotCommitted

    def dataset(
        self,
        name: str,
        analyst: str | None = None,
        part: str | None = None,
        blocks: str | Window | None = None,
        rows: bool = True,
    ) -> Dataset:
        """Load a dataset as it stands, by the accounts of a `part` and of `blocks`, under the quotas of an
        `analyst`. `rows`: whether those of the blocks are to be read, so that they must be there.
        """
        with self.log.database.reading(family_rows.questions(name, analyst, part)) as connection:
            return block_rows.load(connection, name, analyst, part, blocks=blocks, rows=rows)

    def dataset_of(self, seq: int, analyst: str | None = None) -> Dataset:
        """Load the dataset of a job by the accounts that it is charged to, under the quotas of an `analyst`, and with
        what the job was made from. UnknownName where there is no such job.
        """
        with self.log.database.reading() as connection:
            entry = self.reservation(seq)
            dataset = block_rows.load_charged(connection, entry, analyst)
            dataset = with_sources(connection, dataset, entry.value, self.log.origin)
            return block_rows.with_queries(connection, dataset)

    def datasets(self, analyst: str | None = None) -> list[Dataset]:
        """Load every dataset as it stands, by name, under the quotas of an `analyst`."""
        with self.log.database.sharing(), self.log.database.reading(dataset_sets.questions()) as connection:
            names = dataset_sets.read_datasets(connection, None, (analyst,), (None, HOLDOUT))
            return [block_rows.load(connection, name, analyst) for name in names]

    def member(self, name: str) -> str:
        """Return `name` of a dataset, else who founded the family of that name. UnknownName: neither; InputError:
        both.
        """
        with self.log.database.reading() as connection:
            return member(connection, name)

    def quotas(self, dataset: str | Dataset) -> list[dict[str, Any]]:
        """Return every analyst's share of the dataset's first family: the quota in force and what was used."""
        with self.log.database.reading() as connection:
            loaded = block_rows.load(connection, dataset) if isinstance(dataset, str) else dataset
            return quotas(connection, loaded.families[0])

    def set_quota(self, name: str, analyst: str, share: Decimal, reason: str, by: str) -> Dataset:
        """Let `analyst` ("*": everybody without a quota of their own) use at most this share of each family's budget.

        What they have used already counts. Governance, not privacy: the family's filter holds with any quota.

        Args:
            share: above 0 and at most 1, with at most 9 decimals; else InputError.
            reason, by: one line of at most 200 characters each; they stay in the ledger.
        """
        with self.log.writing() as writer:
            family_changes.set_quota(writer, name, analyst, share, reason, by)
        return self.dataset(name)

    def change_budget(self, name: str, epsilon: Decimal, reason: str, by: str) -> Dataset:
        """Set the total epsilon of a dataset's family; what was spent stays spent (docs/privacy/filter.md).

        InputError where the dataset is of several families, or `epsilon` is no total.
        """
        with self.log.writing() as writer:
            family_changes.change_budget(writer, name, epsilon, reason, by)
        return self.dataset(name)

    def change_person_total(self, name: str, epsilon: Decimal, reason: str, by: str) -> Dataset:
        """Give one person another total over all blocks of a dataset; what was spent stays spent. InputError where it
        has no such total that may change, or `epsilon` or the reason is none.
        """
        change_person_total(self.log, name, epsilon, Why(by, reason))
        return self.dataset(name)

    @contextmanager
    def remembering(self, queries: Queries) -> Iterator[None]:
        """Ask at once what is asked within the block, as `TransparencyLog.remembering`."""
        with self.log.remembering(queries):
            yield

    def find(self, by: str, key: str, request: Request) -> Job | None:
        """Return the job this idempotency key of `by` stands for; IdempotencyConflict where it came with another
        body.
        """
        with self.log.database.reading() as connection:
            return find_job(connection, by, key, request)

    def find_contribution(self, definition: str) -> int | None:
        """Return the job that pays for what the rows of this ledger add to a campaign; None where none does."""
        with self.log.database.reading() as connection:
            return job_rows.find_contribution(connection, definition)

    def reserve(
        self,
        request: Request,
        unit: Decimal,
        plan: Plan,
        *,
        by: str,
        key: str | None = None,
        owner: str | None = None,
        lease: float = 0.0,
        promotes: bool = True,
        evaluation: tuple[Request, Decimal, Plan] | None = None,
        scheduled: Period | None = None,
    ) -> Job:
        """Check and append in one transaction; where it raises, nothing was changed. On untouched families a job that
        claims no more than their totals takes the whole of them, where the filters do not admit it beside others.

        Args:
            request: the job as it was asked for.
            unit: what the plan's mechanisms grow with, as calibrated.
            plan: every release that the job will make.
            by: the analyst, whose quota counts as well; `promotes`: whether they may promote the model.
            key: the idempotency key, of 1 to 200 characters; where it came before from `by` with this request, that job
                is returned and nothing is charged.
            owner: the process that will run the job itself, taken to live for `lease` seconds without a word; None puts
                it in the queue, for any worker to start.
            evaluation: request, unit and plan of an evaluation of the model that the job will make, whose price is
                charged with it: both or none. It waits in the queue, and is given back where nothing comes of the job.
            scheduled: the schedule, and its period, that the job is of: WrongState and IdempotencyConflict as
                `schedules.admit`.

        Raises:
            Forbidden: the model's name is another's, or its version shall be champion, and `by` may not promote it.
            BudgetRefused: the plan does not fit into a family's budget or the analyst's quota.
            IdempotencyConflict: the key came before with another request.
            InputError: the plan costs more than was asked for or than its price says, or a name or key is not allowed.
            UnknownName: no such dataset.
        """
        check_key(key)
        priced = price_job(request, unit, plan)
        following = None if evaluation is None else price_job(*evaluation)
        asked = questions.about_request(request.dataset, by, key, request.model)
        with self.log.writing(first=asked) as writer:
            job_of_key = find_job(writer.connection, by, key, request) if key is not None else None
            if job_of_key:
                return job_of_key
            job = reserve(writer, priced, by, key, owner, lease, promotes, scheduled=scheduled)
            if following is not None:
                following = replace(following, request=replace(following.request, kind=Evaluation(job.seq)))
                reserve(writer, following, by, None, None, 0.0, promotes, follows=True)
            return job

    def start(self, seq: int, owner: str, lease: float) -> Started:
        """Start a job (RESERVED -> STARTED): from here on the price stays. Gives the right to read rows, to one caller
        alone; to any other, WrongState. `lease`: seconds by the database's clock for which `owner` counts as alive
        without a word, unless `heartbeat` renews it.

        BudgetRefused where a total was lowered so far since that the job does not fit beside those that have started,
        InputError where the admission of its learner has ended: it is given back instead.
        """
        with self.log.writing(first=questions.about_step(seq)) as writer:
            job = read_job(writer.connection, seq)
            require_state(job, State.RESERVED, "start")
            job_rows.require_first(writer.signed, job, "start")
            entry = writer.signed.entry(seq)
            stored = entry.value
            evaluations.require_made(writer.connection, stored)
            dataset = block_rows.load_charged(writer.connection, entry, None, writer.signed)
            costs = dataset.costs_from_json(stored["price"])
            exceeded = dataset.exceeds_lowered_total(costs, parse_decimal(stored["claim"]["epsilon"]))
            about = stored["learner"], stored["parameters"], stored["dataset"]
            refused: DpserveError | None = learner_admissions.refusal(writer.signed, *about)
            if exceeded is not None:
                refused = outgrown_refusal(seq, exceeded, dataset, request_from_entry(stored))
            if refused is None:
                lines = after(dataset.families, costs, 0)
                writer.append("started", reservation=seq, after=block_rows.merge_equal_blocks(dataset.families, lines))
                block_rows.put(writer.connection, dataset.families, lines)
                expires = engines.clock(writer.connection) + lease
                values = {"state": State.STARTED, "owner": owner, "expires": expires, "doubted": None}
                writer.connection.execute(_SET_JOB, {"at": seq, **values})
                plan = plan_from_json(stored["plan"])
                return Started(seq, dataset, request_from_entry(stored), Decimal(stored["unit"]), plan)
            self._give_back(writer, seq)
        raise refused

    def commit(self, seq: int, released: str, owner: str | None = None) -> None:
        """Commit a job (STARTED -> COMMITTED). `released`: sha256 of the released numbers, to resume an export by.

        WrongState where the job has not started, or with `owner` where it is held by another.
        """
        with self.log.writing(finishes=owner is not None, first=questions.about_step(seq)) as writer:
            self._move(writer, seq, State.STARTED, State.COMMITTED, owner, released=released)

    def burn(self, seq: int, reason: str, owner: str | None = None, expires: float | None = None) -> None:
        """Burn a job (STARTED -> BURNED): it came to nothing, its price stays. `reason` is one of a few public words.

        WrongState where the job has not started, or is not held by `owner` until `expires` (a `Holding`'s).
        """
        with self.log.writing(first=questions.about_step(seq)) as writer:
            self._move(writer, seq, State.STARTED, State.BURNED, owner, expires, reason=reason)
            self._give_back_following(writer, seq)

    def release(self, seq: int, owner: str | None = None, expires: float | None = None, why: str | None = None) -> None:
        """Release a job (RESERVED -> RELEASED): no row was read, the price is given back. WrongState where it has
        started, or is not held by `owner` until `expires` (a `Holding`'s). `why`: one of `records.GIVEN_BACK`; no part
        of the entry.
        """
        with self.log.writing(first=questions.about_step(seq)) as writer:
            self._give_back(writer, seq, owner, expires)
            if why is not None:
                writer.connection.execute(_SET_JOB, {"at": seq, "waiting": why})

    def _give_back(self, writer: Writer, seq: int, owner: str | None = None, expires: float | None = None) -> None:
        connection, job = writer.connection, read_job(writer.connection, seq)
        require_state(job, State.RESERVED, "release")
        job_rows.require_first(writer.signed, job, "release")
        entry = writer.signed.entry(seq)
        dataset = block_rows.load_charged(connection, entry, entry.value["by"], writer.signed)
        costs = dataset.costs_from_json(entry.value["price"])
        lines = after(dataset.families, costs, -1)
        merged = block_rows.merge_equal_blocks(dataset.families, lines)
        self._move(writer, seq, State.RESERVED, State.RELEASED, owner, expires, after=merged)
        block_rows.put(connection, dataset.families, lines)
        self._give_back_following(writer, seq)

    def _give_back_following(self, writer: Writer, seq: int) -> None:
        """Give back the evaluation of a job that came to nothing: the evaluation of what it would have made."""
        job = evaluations.following(writer.connection, seq)
        if job is not None and job.state is State.RESERVED:
            self._give_back(writer, job.seq)

    def issue(self, seq: int, statement: str, model: str, signed_by: str | None = None) -> int:
        """Bind the statement's and the model's sha256 to a committed job, once; returns the index of the `issued`
        entry. WrongState where the job is not committed, or has a certificate. `signed_by`: the keyid that signed the
        certificate; KeyInvalid where it may not any more.
        """
        with self.log.writing(first=questions.about_step(seq)) as writer:
            if signed_by is not None:
                key_rows.require_issuer(writer.connection, signed_by)
            name = read_job(writer.connection, seq).model
            index = writer.append("issued", reservation=seq, statement=statement, model=model, name=name)
            writer.connection.execute(_SET_JOB, {"at": seq, "issued": index})
            return index

    def derive(self, base: int, statement: str, model: str, why: Why, signed_by: str | None = None) -> int:
        """Bind an edited model's sha256 digests to the entry of the model it came from; returns the index of the
        `derived` entry. It changes no budget. WrongState where the base was revoked. `signed_by`: as for `issue`."""
        with self.log.writing() as writer:
            if signed_by is not None:
                key_rows.require_issuer(writer.connection, signed_by)
            return derived_entries.derive(writer, base, statement, model, why)

    def find_derived(self, statement: str, since: int) -> int | None:
        """Return the `derived` entry, from `since` on, that binds this statement."""
        with self.log.database.reading() as connection:
            return derived_entries.find(connection, statement, since)

    def lineage(self, index: int) -> list[Entry]:
        """Return the entries that a certified model came from, the `issued` one first, its own last."""
        with self.log.database.reading() as connection:
            return derived_entries.lineage(connection, index)

    def job(self, seq: int) -> Job:
        """Return the job of this number as it stands; UnknownName where there is none."""
        with self.log.database.reading(job_rows.question_of(seq)) as connection:
            return read_job(connection, seq)

    def jobs(self, state: State | None = None) -> list[Job]:
        """Return every job, or every job in `state`, the oldest first."""
        where = [] if state is None else [job_table.c.state == state]
        with self.log.database.reading() as connection:
            return [job_of(row) for row in connection.execute(select(job_table).where(*where).order_by("seq"))]

    def page_of_jobs(
        self,
        dataset: str | None,
        state: State | None,
        issued: bool | None,
        before: int,
        limit: int,
        seen: SeenJobs | None = None,
    ) -> list[Job]:
        """Return at most `limit` jobs numbered below `before`, the newest first; of one dataset, in one state, with a
        certificate or without, and such as somebody may see, where that is said.
        """
        with self.log.database.reading() as connection:
            return job_rows.page(connection, dataset, state, issued, before, limit, seen)

    def is_busy(self) -> bool:
        """Return whether a job has started and not ended."""
        with self.log.database.reading() as connection:
            return bool(rows_of(connection, job_rows.RUNNING, {}))

    def reservation(self, seq: int) -> Entry:
        """Return the job's `reserved` entry, with the plan as it was reserved; UnknownName where there is no such
        job.
        """
        entry = self.log.entry(seq)
        if entry.value["type"] != "reserved":
            raise UnknownName(f"job={seq}: no such job", job=seq)
        return entry

    def released_digest(self, seq: int) -> str:
        """Return sha256 of the numbers that a committed job released; WrongState where it is not committed."""
        with self.log.database.reading() as connection:
            committed = connection.execute(select(job_table.c.committed).where(job_table.c.seq == seq)).scalar()
            if committed is None:
                raise WrongState(f"job {seq}: is not committed", job=seq)
            return str(read_entry(committed, body_at(connection, committed)).value["released"])

    def reservation_hash(self, seq: int) -> str:
        """Return the RFC 6962 leaf hash of the job's `reserved` entry."""
        return leaf_hash(self.reservation(seq).body).hex()

    def leave_waiting(self, seq: int, why: str) -> None:
        """Say of a queued job why a worker left it for another: one of `records.WAITING`. Not an entry."""
        with self.log.database.writing() as connection:
            connection.execute(_SET_JOB, {"at": seq, "waiting": why})

    def heartbeat(self, seq: int, owner: str, lease: float, done: int) -> bool:
        """Renew the lease, and say how many releases of the plan were played. Not an entry. False where `owner` does
        not hold the job (any more)."""
        with self.log.database.writing() as connection:
            return job_rows.renew(connection, seq, owner, lease, done)

    def doubt(self, holding: Holding) -> None:
        """Note that this lease was seen to have run out; the next heartbeat strikes that out. Not an entry."""
        with self.log.database.writing() as connection:
            job_rows.doubt(connection, holding)

    def leases(self) -> list[Holding]:
        """Return every job that a process holds: RESERVED outside the queue, or STARTED."""
        with self.log.database.reading() as connection:
            return job_rows.holdings(connection)

    def next_queued(
        self,
        without: Collection[str] = (),
        among: Collection[str] = (),
        passed: Collection[int] = (),
    ) -> int | None:
        """Return the oldest reservation in the queue; none on datasets in `without`, and only on those in `among`, if
        any; and none of those in `passed`.
        """
        with self.log.database.reading() as connection:
            return job_rows.oldest_queued(connection, without, among, passed)

    @staticmethod
    def _move(
        writer: Writer,
        seq: int,
        before: State,
        then: State,
        owner: str | None = None,
        expires: float | None = None,
        **fields: Any,
    ) -> Job:
        """Make one step of the state machine. With `owner` (and `expires`), only while the job is held just so: a lease
        that passed to another, or was renewed meanwhile, fences the caller off.
        """
        verb = {State.COMMITTED: "commit", State.BURNED: "burn", State.RELEASED: "release"}[then]
        job = read_job(writer.connection, seq)
        require_state(job, before, verb)
        if owner is not None:
            job_rows.require_holder(writer.connection, job, verb, owner, expires)
        index = writer.append(then.value, reservation=seq, **fields)
        values: dict[str, Any] = {"state": then, "owner": None, "expires": None}
        values |= {"committed": index} if then is State.COMMITTED else {}
        writer.connection.execute(_SET_JOB, {"at": seq, **values})
        return job
