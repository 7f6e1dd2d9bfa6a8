"""A client for programs: `Client(url, token)`. Typed; tries again where that is safe; streams a job's progress.

    with Client("http://127.0.0.1:3000", token) as service:
        job = service.train("adult", "lazybb", epsilon="0.5")
        print(service.predict(job.model, records).labels)

Whatever a service refuses is a `dpserve.errors.ServiceError`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from dpserve.errors import JobFailed, ServiceError, Unavailable, UnknownName
from dpserve.transport import Transport, failure, hopeful, unreachable
from dpserve.types import Dataset, Entry, Explanation, Job, Json, Model, Plan, Predictions, Record

URL = "http://127.0.0.1:3000"
QUIET_SECONDS = 30.0  # the service says something at least every ten
AGAIN_SECONDS = 1.0
Number = str | float | Decimal


class Client:
    """A service at `url`, asked with `token`; DPSERVE_URL and DPSERVE_TOKEN where they are left out.

    `retries`: how often a request is asked again that failed for a while (429, 502, 503, 504, no answer), where asking
    twice does no more than asking once: reading, predicting, pricing, and submitting, which has an idempotency key.
    `options` go to httpx.Client: `verify` for a certificate authority of your own, `cert`, `proxy`.
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
        self._transport.http.close()

    # Datasets and jobs: scope train; reading also audit

    def datasets(self) -> list[Dataset]:
        return [Dataset.of(each) for each in self._get("/v1/datasets")["datasets"]]

    def dataset(self, name: str) -> Dataset:
        return Dataset.of(self._get(f"/v1/datasets/{_segment(name)}"))

    def plan(self, dataset: str, learner: str, epsilon: Number, **more: Any) -> Plan:
        """Price a job; spends nothing. `more` as for `submit`. BudgetRefused where it would not be admitted."""
        return Plan.of(self._post("/v1/plans", _asked(dataset, learner, epsilon, **more)))

    def submit(
        self,
        dataset: str,
        learner: str,
        epsilon: Number,
        *,
        delta: Number | None = None,
        parameters: Mapping[str, Any] | None = None,
        model: str | None = None,
        tuning: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Charge a job and put it in the queue. BudgetRefused where it does not fit; nothing is spent then.

        A key of its own is made where none is given, so a request that is tried again spends once. Give your own where
        your program may be started again.
        """
        body = _asked(dataset, learner, epsilon, delta, parameters, model, tuning)
        return Job.of(self._post("/v1/jobs", {**body, "idempotency_key": idempotency_key or str(uuid.uuid4())}))

    def job(self, number: int) -> Job:
        return Job.of(self._get(f"/v1/jobs/{number:d}"))

    def jobs(self, dataset: str | None = None, state: str | None = None) -> Iterator[Job]:
        """Every job, the newest first, a page at a time as they are asked for."""
        after: int | None = None
        while True:
            page = self._get("/v1/jobs", dataset=dataset, state=state, after=after, limit=200)
            yield from map(Job.of, page["jobs"])
            if (after := page["next"]) is None:
                return

    def cancel(self, number: int) -> Job:
        """Give a reservation back. BadInput (409) once the job has started, for then its budget is spent."""
        return Job.of(self._transport.ask("DELETE", f"/v1/jobs/{number:d}", again=False))

    def events(self, number: int) -> Iterator[Job]:
        """The job at each change of state or progress, until it is over. Comes back by itself where it is cut off."""
        seen: str | None = None
        attempt = 0
        while True:
            try:
                for name, body in self._stream(number, seen):
                    seen, attempt = name, 0
                    yield (job := Job.of(body))
                    if job.over:
                        return
                time.sleep(AGAIN_SECONDS)  # ended in good order: it was long, or the service stops
            except ServiceError as error:
                if attempt >= self._transport.retries or not (error.status == 0 or hopeful(error)):
                    raise
                self._transport.wait(attempt)
                attempt += 1

    def _stream(self, number: int, seen: str | None) -> Iterator[tuple[str, Json]]:
        headers = {"Accept": "text/event-stream", **({} if seen is None else {"Last-Event-ID": seen})}
        timeout = httpx.Timeout(self._transport.http.timeout.connect, read=QUIET_SECONDS)
        where = f"/v1/jobs/{number:d}/events"
        try:
            with self._transport.http.stream("GET", where, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise failure(answer)
                yield from _events(answer.iter_lines())
        except httpx.TransportError as error:
            raise unreachable(error) from error

    def wait(self, number: int, progress: Callable[[int, int], None] = lambda done, total: None) -> Job:
        """The job once it is issued. JobFailed where it came to nothing: burned, its budget is spent; released, not."""
        for job in self.events(number):
            progress(job.done, job.total)
        if job.state != "issued":
            said = job.error or "the job was cancelled before it started; nothing was spent"
            raise JobFailed(200, f"job_{job.state}", f"job {number}: {said}", {"job": number})
        return job

    def train(
        self,
        dataset: str,
        learner: str,
        epsilon: Number,
        *,
        progress: Callable[[int, int], None] = lambda done, total: None,
        **more: Any,
    ) -> Job:
        """`submit` and `wait`."""
        return self.wait(self.submit(dataset, learner, epsilon, **more).number, progress)

    # Models: scope predict; reading with any

    def models(self) -> list[Model]:
        return [Model.of(each) for each in self._get("/v1/models")["models"]]

    def model(self, reference: str) -> Json:
        """Features, classes or range, certificate. `adult`, `adult@champion` or `adult@2`."""
        found: Json = self._get(f"/v1/models/{_segment(reference)}")
        return found

    def certificate(self, reference: str) -> Json:
        """Envelope, proof and statement: with the model's file and the pinned keys, all that a verifier needs."""
        found: Json = self._get(f"/v1/models/{_segment(reference)}/certificate")
        return found

    def predict(self, model: str, records: Sequence[Record]) -> Predictions:
        return Predictions.of(self._post("/predict", {"model": model, "records": list(records)}))

    def explain(self, model: str, records: Sequence[Record]) -> Explanation:
        """What each feature adds, of additive models; BadInput (422, not_additive) for trees."""
        return Explanation.of(self._post("/explain", {"model": model, "records": list(records)}))

    # Which version answers to a name: scope admin. `reason` stands in the ledger for ever

    def promote(self, name: str, version: int, reason: str) -> Json:
        """Let the name alone mean this version from now on."""
        return self._place(f"{_segment(name)}/champion", {"version": version, "reason": reason})

    def retire(self, reference: str, reason: str) -> Json:
        """Serve `name@version` no more; its files and its certificate stay."""
        return self._place(f"{_segment(reference)}/retire", {"reason": reason})

    def restore(self, reference: str, reason: str) -> Json:
        """Serve a retired `name@version` again."""
        return self._place(f"{_segment(reference)}/restore", {"reason": reason})

    def _place(self, path: str, body: Json) -> Json:
        found: Json = self._transport.ask("POST", f"/v1/models/{path}", again=False, body=body)
        return found

    # The ledger: scope audit

    def ledger(self, after: int = 0) -> Iterator[Entry]:
        """Every entry from this index on."""
        while page := self._get("/v1/ledger", after=after)["entries"]:
            yield from (Entry(each["index"], each["body"]) for each in page)
            after = page[-1]["index"] + 1

    def checkpoint(self) -> str:
        """The newest signed tree head, a C2SP note. Keep it: it shows any rewriting of what came before."""
        return self._transport.text("/v1/ledger/checkpoint")

    def proof(self, leaf: int, size: int | None = None) -> Json:
        found: Json = self._get("/v1/ledger/proof", leaf=leaf, size=size)
        return found

    def audit(self, seconds: float = 600.0) -> Json:
        """Ask for an audit of everything and wait for its result: `ok`, `entries`, `root`, `problems`."""
        asked = self._transport.ask("POST", "/v1/audits", again=True)["asked"]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.last_audit()
            if found is not None and found["at"] >= asked:
                return found
            time.sleep(AGAIN_SECONDS)
        raise Unavailable(0, "timeout", f"no audit was made within {seconds:g} seconds; the server's log says why")

    def last_audit(self) -> Json | None:
        """The newest audit's result; None before the first."""
        try:
            found: Json = self._get("/v1/audits/last")
        except UnknownName:
            return None
        return found

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether the service answers; waits for it up to `seconds`."""
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

    def _get(self, path: str, **query: Any) -> Any:
        return self._transport.ask("GET", path, again=True, query=query)

    def _post(self, path: str, body: Json) -> Any:
        """Of what may be asked twice: all but a submission without its key, and there is none."""
        return self._transport.ask("POST", path, again=True, body=body)


def _asked(
    dataset: str,
    learner: str,
    epsilon: Number,
    delta: Number | None = None,
    parameters: Mapping[str, Any] | None = None,
    model: str | None = None,
    tuning: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    given = {"delta": None if delta is None else str(delta), "parameters": parameters, "model": model, "tuning": tuning}
    said = {name: value for name, value in given.items() if value is not None}
    return {"dataset": dataset, "learner": learner, "epsilon": str(epsilon), **said}


def _segment(name: str) -> str:
    """One segment of a path, whatever stands in it."""
    if name in ("", ".", ".."):
        raise ValueError(f"name={name!r}: is no name")
    return quote(name, safe="@")


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Json]]:
    """Name and data of each event; comments, and what says when to come back, are passed over."""
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "id":
            name = value
        elif field == "data":
            yield name, json.loads(value)
