"""A client for programs: `Client(url, token)`. Typed; tries again where that is safe; streams a job's progress.

    with Client("http://127.0.0.1:3000", token) as service:
        job = service.train("adult", epsilon="0.5")
        print(service.predict(job.model, records).labels)

Whatever a service refuses is a `dpserve.errors.ServiceError`.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from dpserve.audited import Audited
from dpserve.curves import Explaining
from dpserve.edited import Edited
from dpserve.errors import JobFailed, ServiceError
from dpserve.measured import Measured
from dpserve.scheduled import Scheduled
from dpserve.transport import AGAIN_SECONDS, Number, Transport, failure, hopeful, segment, server_events, unreachable
from dpserve.types import Dataset, Family, Grant, Job, Json, Model, Plan, Predictions, Record

URL = "http://127.0.0.1:3000"
QUIET_SECONDS = 30.0  # the service says something at least every ten


class Client(Measured, Edited, Explaining, Audited, Scheduled):
    """A service, asked over a pool of connections that `close`, or the end of a `with` block, ends.

    Every method raises a ServiceError for what is not a success: BadInput for a wrong request, NotAllowed for the
    token, Unavailable where the service does not answer.

    Args:
        url: Where it is; DPSERVE_URL when left out, and http://127.0.0.1:3000 without that.
        token: `dps_...`, of a scope that the method needs; DPSERVE_TOKEN when left out.
        timeout: Seconds that a connection, or a silence of the service, may last.
        retries: How often a request is asked again that failed for a while (429, 502, 503, 504, no answer), where
            asking twice does no more than asking once: reading, predicting, pricing, and submitting, which has an
            idempotency key.
        options: For httpx.Client: `verify` for a certificate authority of your own, `cert`, `proxy`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 6,
        **options: Any,
    ) -> None:
        where = url or os.environ.get("DPSERVE_URL") or URL
        self._transport = Transport(where, token or os.environ.get("DPSERVE_TOKEN"), timeout, retries, **options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._transport.http.close()

    # Datasets and jobs: scope train; reading also audit

    def datasets(self) -> list[Dataset]:
        """Every dataset and its budget."""
        return [Dataset.of(body) for body in self._get("/v1/datasets")["datasets"]]

    def families(self) -> list[Family]:
        """Every family: its datasets and the one budget that they share."""
        return [Family.of(body) for body in self._get("/v1/families")["families"]]

    def dataset(self, name: str) -> Dataset:
        """One dataset and its budget.

        Raises:
            UnknownName: No such dataset.
        """
        return Dataset.of(self._get(f"/v1/datasets/{segment('dataset', name)}"))

    def plan(self, dataset: str, learner: str = "auto", epsilon: Number | None = None, **more: Any) -> Plan:
        """Price a job; spends nothing.

        Args:
            dataset: Its name.
            learner: The learner's name; `auto` lets a public rule choose.
            epsilon: Of this job, above 0; must be said; a text or a Decimal keeps every digit.
            more: `delta`, `parameters`, `model`, `tuning`, `target`, `blocks` and `evaluate`, as for `submit`; what an
                evaluation would cost is in the plan's `raw["evaluation"]`.

        Raises:
            BudgetRefused: It would not be admitted; `would_fit` says what would.
        """
        return Plan.of(self._post("/v1/plans", _request(dataset, learner, epsilon, **more)))

    def submit(
        self,
        dataset: str,
        learner: str = "auto",
        epsilon: Number | None = None,
        *,
        delta: Number | None = None,
        parameters: Mapping[str, Any] | None = None,
        model: str | None = None,
        tuning: Mapping[str, Any] | None = None,
        target: str | None = None,
        promote: bool = False,
        evaluate: Number | None = None,
        blocks: str | None = None,
        labels: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Job:
        """Charge a job and put it in the queue.

        Args:
            dataset: Its name.
            learner: The learner's name; `auto` lets a public rule choose.
            epsilon: Of this job, above 0; must be said; a text or a Decimal keeps every digit.
            delta: Of this job, in [0, 1); the dataset's when left out.
            parameters: Of the learner, by name; the defaults when left out. They are public.
            model: Name of the model; the dataset's when left out.
            tuning: `{"grid": {parameter: [values]}, "runs": mean}`: the best of a random number of runs, as one job.
            target: What to predict; must be said where the dataset has several targets.
            promote: Make the model champion of its name at once; else it is a candidate, unless it is the first.
            evaluate: Epsilon at which the model is evaluated afterwards on what is kept aside; charged together.
            blocks: Of a dataset that grows, which: `all`, `last:12`, `3-7`; the job is charged to each.
            labels: Of workers: only one that has all of them takes the job.
            idempotency_key: The same key with the same request is the same job, and spends once. One is made where
                none is given, so that a request tried again spends once; give your own where your program may be
                started again.

        Raises:
            BudgetRefused: It does not fit; nothing was spent, and `would_fit` says what fits.
            BadInput: A parameter is wrong, or (409) the key stands for another request.
        """
        body = _request(dataset, learner, epsilon, delta, parameters, model, tuning, target, evaluate, blocks, labels)
        body |= {"promote": True} if promote else {}
        return Job.of(self._post("/v1/jobs", {**body, "idempotency_key": idempotency_key or str(uuid.uuid4())}))

    def job(self, number: int) -> Job:
        """A job as it stands.

        Raises:
            UnknownName: No such job.
        """
        return Job.of(self._get(self._numbered("/v1/jobs", number)))

    def jobs(self, dataset: str | None = None, state: str | None = None) -> Iterator[Job]:
        """Every job, the newest first, fetched a page at a time.

        Args:
            dataset: Only of this dataset.
            state: Only in this one: reserved, started, committed, issued, burned or released.
        """
        after: int | None = None
        while True:
            page = self.page_of_jobs(dataset, state, after, limit=200)
            yield from map(Job.of, page["jobs"])
            if (after := page["next"]) is None:
                return

    def page_of_jobs(
        self, dataset: str | None = None, state: str | None = None, after: int | None = None, limit: int = 50
    ) -> Json:
        """As `jobs`, one page as it came: `jobs`, and `next`, from which the page after it goes on."""
        page: Json = self._get("/v1/jobs", dataset=dataset, state=state, after=after, limit=limit)
        return page

    def cancel(self, number: int) -> Job:
        """Give a reservation back.

        Raises:
            BadInput: (409) The job has started, and its budget is spent.
        """
        return Job.of(self._transport.ask("DELETE", self._numbered("/v1/jobs", number), again=False))

    def events(self, number: int) -> Iterator[Job]:
        """The job at each change of state or progress, until it is over and its model has its place. Comes back by
        itself where it is cut off.
        """
        seen: str | None = None
        attempt = 0
        while True:
            try:
                for name, last, body in self._stream(number, seen):
                    seen, attempt = name, 0
                    yield Job.of(body)
                    if last:
                        return
                time.sleep(AGAIN_SECONDS)  # ended in good order: it was long, or the service stops
            except ServiceError as error:
                if attempt >= self._transport.retries or not (error.status == 0 or hopeful(error)):
                    raise
                self._transport.wait(attempt)
                attempt += 1

    def _stream(self, number: int, seen: str | None) -> Iterator[tuple[str, bool, Json]]:
        headers = {"Accept": "text/event-stream", **({} if seen is None else {"Last-Event-ID": seen})}
        timeout = httpx.Timeout(self._transport.http.timeout.connect, read=QUIET_SECONDS)
        where = self._numbered("/v1/jobs", number) + "/events"
        try:
            with self._transport.http.stream("GET", where, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise failure(answer)
                yield from server_events(answer.iter_lines())
        except httpx.TransportError as error:
            raise unreachable(error) from error

    def wait(self, number: int, progress: Callable[[int, int], None] = lambda done, total: None) -> Job:
        """The job, once it is issued.

        Args:
            number: The job's.
            progress: Called with releases done and in all (of a tuned job: runs); they say nothing of the data.

        Raises:
            JobFailed: It came to nothing: `job_burned`, its budget is spent; `job_released`, nothing was.
        """
        for job in self.events(number):
            progress(job.done, job.total)
        if job.state != "issued":
            reason = job.error or "the job was cancelled before it started; nothing was spent"
            raise JobFailed(200, f"job_{job.state}", f"job {number}: {reason}", {"job": number})
        return job

    def train(
        self,
        dataset: str,
        learner: str = "auto",
        epsilon: Number | None = None,
        *,
        progress: Callable[[int, int], None] = lambda done, total: None,
        **more: Any,
    ) -> Job:
        """`submit` and `wait`: their arguments, and their errors."""
        return self.wait(self.submit(dataset, learner, epsilon, **more).number, progress)

    # Models: scope predict; reading with any

    def models(self) -> list[Model]:
        """Every version of every model, served or not."""
        return [Model.of(body) for body in self._get("/v1/models")["models"]]

    def model(self, reference: str) -> Json:
        """Features, classes or range, certificate. `adult`, `adult@champion` or `adult@2`."""
        body: Json = self._get(f"/v1/models/{segment('model', reference)}")
        return body

    def certificate(self, reference: str) -> Json:
        """Envelope, proof and statement: with the model's file and the pinned keys, all that a verifier needs."""
        body: Json = self._get(f"/v1/models/{segment('model', reference)}/certificate")
        return body

    def predict(self, model: str, records: Sequence[Record]) -> Predictions:
        """A label, or a number, for each record, in their order.

        Args:
            model: `adult`, `adult@champion` or `adult@2`.
            records: Feature -> value; None where a value is missing, never NaN.

        Raises:
            UnknownName: No such model is served.
            BadInput: (422) A record does not fit the model's schema; the message names record and field.
        """
        return Predictions.of(self._post("/predict", {"model": model, "records": list(records)}))

    def predict_table(self, model: str, table: bytes, kind: str, answer: str | None = None) -> bytes:
        """As `predict`, of a table in bytes with a column for each feature: Arrow, `.npy`, CSV or Parquet.

        Args:
            model: As for `predict`.
            table: At most 20,000 records and 16 MiB.
            kind: Its media type: `application/vnd.apache.arrow.stream`, `application/x-npy`, `text/csv` or
                `application/vnd.apache.parquet`.
            answer: The media type that is wanted back, which is never Parquet; as `kind` where left out.
        """
        headers = {"Content-Type": kind, "Accept": answer or kind}
        return self._transport.answer(
            "POST", "/predict", content=table, query={"model": model}, headers=headers
        ).content

    # Which version answers to a name: scope promote. `reason` stands in the ledger permanently

    def promote(self, name: str, version: int, reason: str, **flags: bool) -> Json:
        """Let the name alone mean this version from now on. `replaces`: the one that it meant before. `if_better`:
        only where a statement shows it; `although_not_better`: also where it is not shown to beat a constant answer.
        """
        return self._place(f"{segment('model', name)}/champion", {"version": version, "reason": reason, **flags})

    def retire(self, reference: str, reason: str) -> Json:
        """Serve `name@version` no more; its files and its certificate stay."""
        return self._place(f"{segment('model', reference)}/retire", {"reason": reason})

    def restore(self, reference: str, reason: str) -> Json:
        """Serve a retired `name@version` again."""
        return self._place(f"{segment('model', reference)}/restore", {"reason": reason})

    def _place(self, path: str, body: Json) -> Json:
        placed: Json = self._transport.ask("POST", f"/v1/models/{path}", again=False, body=body)
        return placed

    # Campaigns among owners: scope train

    def campaigns(self) -> list[Json]:
        """Every campaign, and how far it is."""
        return list(self._get("/v1/campaigns")["campaigns"])

    def campaign(self, name: str) -> Json:
        """One of them, with what its owners fetch."""
        found: Json = self._get(f"/v1/campaigns/{segment('campaign', name)}")
        return found

    def change_campaign(self, name: str, act: str, reason: str | None = None) -> Json:
        """`next` ends the turn that is being asked, `close` learns from what came, `give-up` ends it for a `reason`."""
        body = {} if reason is None else {"reason": reason}
        path = f"/v1/campaigns/{segment('campaign', name)}/{segment('act', act)}"
        changed: Json = self._transport.ask("POST", path, again=False, body=body)
        return changed

    # Grants: scope admin. `reason` stands in the ledger permanently

    def grants(self, principal: str | None = None) -> list[Grant]:
        """Every grant there ever was, or those of one principal."""
        return [Grant.of(body) for body in self._get("/v1/grants", principal=principal)["grants"]]

    def grant(self, number: int) -> Grant:
        """One, with what would stop if it were revoked."""
        return Grant.of(self._get(self._numbered("/v1/grants", number)))

    def add_grant(
        self, principal: str, scope: str, on: str | Mapping[str, str] = "everything", *, expires: str | None = None
    ) -> Grant:
        """Let a principal do what `scope` says, on {"dataset": name}, a family, a model, or everything. The same again
        is the same grant.
        """
        more = {} if expires is None else {"expires": expires}
        on = on if isinstance(on, str) else dict(on)
        return Grant.of(self._post("/v1/grants", {"principal": principal, "scope": scope, "on": on, **more}))

    def revoke_grant(self, number: int, reason: str) -> Grant:
        """End a grant. Again, it is as it was the first time."""
        return Grant.of(self._post(self._numbered("/v1/grants", number) + "/revoke", {"reason": reason}))

    def tokens(self) -> list[Json]:
        """Every token there ever was: name, principal, scopes, limits, and how it ended; nothing that opens a door."""
        found: list[Json] = self._get("/v1/tokens")["tokens"]
        return found

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether the service answers; waits for it up to `seconds`. Never raises."""
        end = time.monotonic() + seconds
        while True:
            try:
                if self._transport.http.get("/readyz").status_code == 200:
                    return True
            except httpx.TransportError:
                pass
            if time.monotonic() >= end:
                return False
            time.sleep(0.2)


def _request(
    dataset: str,
    learner: str,
    epsilon: Number | None,
    delta: Number | None = None,
    parameters: Mapping[str, Any] | None = None,
    model: str | None = None,
    tuning: Mapping[str, Any] | None = None,
    target: str | None = None,
    evaluate: Number | None = None,
    blocks: str | None = None,
    labels: Sequence[str] = (),
) -> dict[str, Any]:
    if epsilon is None:
        raise TypeError("epsilon: must be said; it is what the job may cost")
    given: dict[str, Any] = {
        "delta": None if delta is None else str(delta),
        "parameters": parameters,
        "model": model,
        "tuning": tuning,
    }
    given |= {"target": target, "blocks": blocks, "labels": [*labels] or None}
    given |= {"evaluate": None if evaluate is None else str(evaluate)}
    more = {name: value for name, value in given.items() if value is not None}
    return {"dataset": dataset, "learner": learner, "epsilon": str(epsilon), **more}
