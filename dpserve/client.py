"""A client for programs: `Client(url, token)`. Typed; tries again where that is safe; streams a job's progress.

    with Client("http://127.0.0.1:3000", token) as service:
        job = service.train("adult", epsilon="0.5")
        print(service.predict(job.model, records).labels)

Whatever a service refuses is a `dpserve.errors.ServiceError`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack, overload

from dpserve.curves import Curves, curves_of
from dpserve.errors import JobFailed
from dpserve.operations import Operations
from dpserve.transport import Transport, numbered_path, request_body, segment, with_key
from dpserve.types import (
    Dataset,
    EvaluationFields,
    Explanation,
    Family,
    Job,
    JobFields,
    Json,
    Model,
    Number,
    Plan,
    Predictions,
    ProfileFields,
    QueryFields,
    Record,
)

URL = "http://127.0.0.1:3000"
Progress = Callable[[int, int], None]  # takes what is done, and the total
Level = float | None


class Client(Operations):
    """A service, asked over a pool of connections that `close`, or the end of a `with` block, ends.

    Every method raises a ServiceError for what is not a success: BadInput for a wrong request, NotAllowed for the
    token, Unavailable where the service does not answer.

    Args:
        url: Where it is; DPSERVE_URL when left out, and http://127.0.0.1:3000 without that.
        token: `dps_...`, of a scope that the method needs; DPSERVE_TOKEN when left out.
        timeout: Seconds that a connection, or a silence of the service, may last; a request and its whole answer may
            last as long, and a second more for each 10,000 bytes.
        retries: How often a request is asked again that failed for a while (429, 502, 503, 504, no answer), where
            asking twice does no more than asking once: reading, predicting, pricing, and submitting, which has an
            idempotency key.
        options: For httpx.Client: `verify` for a certificate authority of your own, `cert`, `proxy`.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = 30, retries: int = 6, **options: Any
    ) -> None:
        where = url or os.environ.get("DPSERVE_URL") or URL
        self._transport = Transport(where, token or os.environ.get("DPSERVE_TOKEN"), timeout, retries, **options)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._transport.http.close()

    def ready(self, seconds: float = 0.0) -> bool:
        """Return whether the service answers; waits for it up to `seconds`. Never raises."""
        return self._transport.ready(seconds)

    def part(self, kind: str, **query: Any) -> Json:
        """Return a part of a list (datasets, families, models, schedules, tokens or grants) as it came: its lines, and
        `next`. `query`: `q`, what a name holds; `limit`, and `after`, the `next` of the part before.
        """
        return self._get(f"/v1/{segment('list', kind)}", **query)

    # Datasets and jobs: scope train; reading also audit

    def datasets(self) -> list[Dataset]:
        """Return every dataset and its budget."""
        return [Dataset.of(body) for body in self._get("/v1/datasets")["datasets"]]

    def families(self) -> list[Family]:
        """Return every family: its datasets and the one budget that they share."""
        return [Family.of(body) for body in self._get("/v1/families")["families"]]

    def dataset(self, name: str) -> Dataset:
        """Return one dataset and its budget. Raises UnknownName."""
        return Dataset.of(self._get(f"/v1/datasets/{segment('dataset', name)}"))

    def plan(
        self, dataset: str, learner: str = "auto", epsilon: Number | None = None, **more: Unpack[JobFields]
    ) -> Plan:
        """Price a job; spends nothing. Arguments as for `submit`; what an evaluation would cost is in the plan's
        `raw["evaluation"]`. Raises BudgetRefused where it would not be admitted; `would_fit` says what would.
        """
        return Plan.of(self._post("/v1/plans", _job_body(dataset, learner, epsilon, more)))

    def submit(
        self, dataset: str, learner: str = "auto", epsilon: Number | None = None, **more: Unpack[JobFields]
    ) -> Job:
        """Charge a job and put it in the queue.

        Args:
            dataset: Its name.
            learner: The learner's name; `auto` lets a public rule choose.
            epsilon: Of this job, above 0; must be said; a text or a Decimal keeps every digit.
            more: `delta`, `parameters`, `model`, `tuning`, `target`, `promote`, `evaluate`, `blocks` and
                `idempotency_key`, each as `dpserve.types.JobFields` says. A key is made where none is given, so that a
                request tried again spends once; give your own where your program may be started again.

        Raises:
            BudgetRefused: It does not fit; nothing was spent, and `would_fit` says what fits.
            BadInput: A parameter is wrong, or (409) the key stands for another request.
        """
        return Job.of(self._post("/v1/jobs", with_key(_job_body(dataset, learner, epsilon, more))))

    def train(
        self,
        dataset: str,
        learner: str = "auto",
        epsilon: Number | None = None,
        *,
        progress: Progress = lambda done, total: None,
        **more: Unpack[JobFields],
    ) -> Job:
        """Submit a job and wait for it, with the arguments and the errors of `submit` and `wait`."""
        return self.wait(self.submit(dataset, learner, epsilon, **more).number, progress)

    def job(self, number: int) -> Job:
        """Return a job as it stands. Raises UnknownName."""
        return Job.of(self._get(numbered_path("/v1/jobs", number)))

    def jobs(self, dataset: str | None = None, state: str | None = None) -> Iterator[Job]:
        """Yield every job, or those of one dataset and in one state (reserved, started, committed, issued, burned or
        released), the newest first, fetched a page at a time.
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
        """Return a page of `jobs` as it came: `jobs`, and `next`, from which the page after it goes on."""
        return self._get("/v1/jobs", dataset=dataset, state=state, after=after, limit=limit)

    def cancel(self, number: int) -> Job:
        """Give a reservation back. Raises BadInput (409) where the job has started, and its budget is spent."""
        return Job.of(self._change("DELETE", numbered_path("/v1/jobs", number)))

    def events(self, number: int) -> Iterator[Job]:
        """Yield the job at each change of state or progress, until it is over and its model has its place."""
        return map(Job.of, self._transport.events(numbered_path("/v1/jobs", number) + "/events"))

    def wait(self, number: int, progress: Progress = lambda done, total: None) -> Job:
        """Return the job, once it is issued.

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

    # Evaluations and profiles: scope train or evaluate, on the dataset

    def plan_evaluation(self, model: str, dataset: str, epsilon: Number, **more: Unpack[EvaluationFields]) -> Json:
        """Price an evaluation; spends nothing. Arguments as for `evaluate`."""
        return self._post("/v1/plans/evaluations", request_body(model=model, dataset=dataset, epsilon=epsilon, **more))

    def evaluate(self, model: str, dataset: str, epsilon: Number, **more: Unpack[EvaluationFields]) -> Json:
        """Measure what a model is worth on private rows, as a job that is waited for; what was measured before costs
        nothing again. Figures with intervals (`metrics`), and the signed statement (`envelope`, `proof`).

        Args:
            model: `adult`, `adult@champion` or `adult@2`.
            dataset: Whose rows: what it keeps aside, unless `part` says otherwise.
            epsilon: Of this evaluation.
            more: `part` ("holdout" or "training"), `against`, another model to be compared with, `group`, a column of
                whose groups each is measured by itself, `scores` (of three or more classes), `delta`, and
                `blocks` of a dataset that grows; `idempotency_key`, as for `submit`.
        """
        body = request_body(model=model, dataset=dataset, epsilon=epsilon, **more)
        return self.evaluation(self.wait(self._post("/v1/evaluations", with_key(body))["job"]).number)

    def evaluation(self, number: int) -> Json:
        """Return a finished evaluation, by its job's number."""
        return self._get(numbered_path("/v1/evaluations", number))

    def plan_profile(self, dataset: str, epsilon: Number, **more: Unpack[ProfileFields]) -> Json:
        """Price a profile; spends nothing. Arguments as for `profile`."""
        return self._post("/v1/plans/profiles", request_body(dataset=dataset, epsilon=epsilon, **more))

    def profile(self, dataset: str, epsilon: Number, **more: Unpack[ProfileFields]) -> Json:
        """Count how the rows of a dataset are spread, as a job that is waited for. The same again costs nothing.

        Args:
            dataset: Its name.
            epsilon: Of this profile.
            more: `delta`, `part`, `columns` (these alone), and `pairs` of columns that are counted together as well;
                `blocks` of a dataset that grows; `idempotency_key`, as for `submit`.
        """
        body = request_body(dataset=dataset, epsilon=epsilon, **more)
        return self.profile_of(self.wait(self._post("/v1/profiles", with_key(body))["job"]).number)

    def profile_of(self, number: int) -> Json:
        """Return a finished profile, by its job's number."""
        return self._get(numbered_path("/v1/profiles", number))

    def synthetic(self, number: int, *, rows: int | None = None, seed: int = 0, format: str = "parquet") -> bytes:
        """Return a file of synthetic rows, parquet or csv, from a finished profile: free, and the same for the same
        seed.
        """
        query = {"seed": str(seed), "format": format} | ({} if rows is None else {"rows": str(rows)})
        return self._transport.answer("GET", numbered_path("/v1/profiles", number) + "/synthetic", query=query).content

    def plan_query(self, dataset: str, select: str, **more: Unpack[QueryFields]) -> Json:
        """Price a query; spends nothing. Arguments as for `query`."""
        return self._post("/v1/plans/answers", request_body(dataset=dataset, select=select, **more))

    def query(self, dataset: str, select: str, **more: Unpack[QueryFields]) -> Json:
        """Ask for counts, sums and means by groups, as a job that is waited for; what follows from an earlier release
        costs nothing. `rows` of groups with figures (value, low end, high end), and the signed statement.

        Args:
            dataset: Its name.
            select: Like `select education, count(*), avg(age) from adult group by education`.
            more: `epsilon` of this answer (left out: what follows from earlier releases alone), `delta`, `part`, and
                `blocks` of a dataset that grows; `idempotency_key`, as for `submit`.
        """
        body = request_body(dataset=dataset, select=select, **more)
        return self.answer(self.wait(self._post("/v1/answers", with_key(body))["job"]).number, select)

    def answer(self, number: int, select: str | None = None) -> Json:
        """Return a finished answer by its job's number; with `select`, the table of another query that follows from
        it.
        """
        return self._get(numbered_path("/v1/answers", number), **({} if select is None else {"select": select}))

    # Models: scope predict; reading with any, on the model

    def models(self) -> list[Model]:
        """Return every version of every model, served or not."""
        return [Model.of(body) for body in self._get("/v1/models")["models"]]

    def model(self, reference: str) -> Json:
        """Return features, classes or range, certificate. `adult`, `adult@champion` or `adult@2`."""
        return self._get(_of_model(reference))

    def certificate(self, reference: str) -> Json:
        """Return envelope, proof and statement: all that a verifier needs beside the model and the pinned keys."""
        return self._get(_of_model(reference, "/certificate"))

    def bundle(self, reference: str, *, portable: bool = False) -> bytes:
        """Return all files of a model as a zip file, the exact bytes that the service has verified; with `portable`,
        also the model in plain ONNX operators.
        """
        query = {"portable": "true"} if portable else {}
        return self._transport.answer("GET", _of_model(reference, "/bundle"), query=query).content

    def predict(
        self,
        model: str,
        records: Sequence[Record],
        notes: bool = False,
        interval: Level = None,
        cover: Level = None,
        group: str | None = None,
    ) -> Predictions:
        """Return a label, or a number, for each record, in their order.

        Args:
            model: `adult`, `adult@champion` or `adult@2`.
            records: Feature -> value; None where a value is missing, never NaN.
            notes: Whether `raw["notes"]` says of each record what was clipped, unknown or missing.
            interval: A level, .9: `raw["interval"]["ends"]` has the ends of what each would be under other noise.
            cover: A level, .9: `raw["cover"]` has `sets` of classes, or `ends`, that hold the truth so often.
            group: With `cover`, a column in each of whose groups that is so.

        Raises:
            UnknownName: No such model is served.
            BadInput: (422) A record does not fit the model's schema; the message names record and field.
        """
        body: Json = {"model": model, "records": list(records)}
        more = {"notes": "1" if notes else None, "interval": interval, "cover": cover, "group": group}
        return Predictions.of(self._transport.ask("POST", "/predict", again=True, body=body, query=more))

    def predict_table(
        self,
        model: str,
        table: bytes,
        kind: str,
        answer: str = "",
        notes: bool = False,
        interval: Level = None,
        cover: Level = None,
        group: str | None = None,
        format: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Predict a table in bytes that has a column for each feature: Arrow, `.npy`, CSV or Parquet.

        Args:
            model: As for `predict`.
            table: At most 20,000 records and 16 MiB.
            kind: Its media type: `text/csv`, `application/x-npy`, `application/vnd.apache.arrow.stream` or `.parquet`.
            answer: The media type that is wanted back, never Parquet; as `kind` if left out.
            notes, interval, cover, group: As for `predict`, in columns `notes`, `low` and `high`, `in_<class>`.
            format: How the table is written, in place of `format` of `model`; {} as usual.
        """
        headers = {"Content-Type": kind, "Accept": answer or kind}
        query = {"model": model, "notes": "1" if notes else None, "interval": interval, "cover": cover, "group": group}
        query |= {} if format is None else {"format": json.dumps(format)}
        return self._transport.answer("POST", "/predict", content=table, query=query, headers=headers).content

    @overload
    def explain(self, model: str) -> Curves:
        """Return the curves of every feature."""

    @overload
    def explain(self, model: str, records: Sequence[Record]) -> Explanation:
        """Return what each feature adds to the prediction of each record."""

    def explain(self, model: str, records: Sequence[Record] | None = None) -> Curves | Explanation:
        """Return what each feature adds: to the prediction of each record, or without records the whole curve of each
        feature, by its bins, asked for by records of their own, 500 at once. Either is a drawing in a notebook, and
        `columns()` is what frames are made of. Raises BadInput as `predict`; `not_additive` (422) for trees.
        """
        if records is None:
            return curves_of(self.model(model), lambda asked: self.explain(model, asked))
        return Explanation.of(self._post("/explain", {"model": model, "records": list(records)}))

    # Edits: reading with any scope on the model; an edit takes train on a name of one's own, else promote

    def curve(self, reference: str, feature: str | None = None, label: str | int | None = None) -> Json:
        """Return what every bin of a feature, or of a pair `age & hours`, adds, for the class `label` of three or more;
        the first when left out. `terms`: what else has a curve. Raises BadInput where the model has no such curve.
        """
        query = {"feature": feature, "class": None if label is None else str(label)}
        return self._get(_of_model(reference, "/curve"), **query)

    def edit(
        self,
        reference: str,
        edits: Sequence[Mapping[str, Any]],
        reason: str | None = None,
        *,
        entry: int | None = None,
        promote: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """Make a new version of the model with these edits, certified; costs no privacy. `changed` has both figures of
        each bin, `model` the new version.

        Args:
            reference: What is edited: `adult`, or `adult@2`.
            edits: As in the file of `dpserve model edit --file`: each `{"feature": "age", "zero": "..25"}`, say; of
                three classes or more with `"class": "setosa"`.
            reason: It stays in the model, its certificate and the ledger permanently; a dry run needs none.
            entry: Of its certificate, as it was looked at: refused (409) where `reference` means another by now.
            promote: Make it champion at once; else it is a candidate.
            dry_run: Say what would change, and make nothing.

        Raises:
            NotAllowed: The name is another's, and no grant to promote it is held.
            BadInput: An edit is wrong, or (409) a version has these very edits already: `details["model"]`.
        """
        edits = [dict(edit) for edit in edits]
        body = request_body(edits=edits, reason=reason, entry=entry, promote=promote, dry_run=dry_run)
        return self._change("POST", _of_model(reference, "/edits"), body, again=dry_run)

    # Which version answers to a name: scope promote. `reason` stands in the ledger permanently

    def promote(self, name: str, version: int, reason: str, **flags: bool) -> Json:
        """Let the name alone mean this version from now on. `replaces`: the one that it meant before. `if_better`:
        only where a statement shows it; `although_not_better`: also where it is not shown to beat a constant answer.
        """
        return self._change("POST", _of_model(name, "/champion"), {"version": version, "reason": reason, **flags})

    def retire(self, reference: str, reason: str) -> Json:
        """Serve `name@version` no more; its files and its certificate stay."""
        return self._change("POST", _of_model(reference, "/retire"), {"reason": reason})

    def restore(self, reference: str, reason: str) -> Json:
        """Serve a retired `name@version` again."""
        return self._change("POST", _of_model(reference, "/restore"), {"reason": reason})

    # Campaigns among owners: scope train

    def campaigns(self) -> list[Json]:
        """Return every campaign, and how far it is."""
        return list(self._get("/v1/campaigns")["campaigns"])

    def campaign(self, name: str) -> Json:
        """Return one of them, with what its owners fetch."""
        return self._get(f"/v1/campaigns/{segment('campaign', name)}")

    def change_campaign(self, name: str, act: str, reason: str | None = None) -> Json:
        """End the turn of a campaign (`next`), learn from what came (`close`), or `give-up` for a `reason`."""
        path = f"/v1/campaigns/{segment('campaign', name)}/{segment('act', act)}"
        return self._change("POST", path, request_body(reason=reason))


def _of_model(reference: str, part: str = "") -> str:
    return f"/v1/models/{segment('model', reference)}{part}"


def _job_body(dataset: str, learner: str, epsilon: Number | None, more: JobFields) -> dict[str, Any]:
    if epsilon is None:
        raise TypeError("epsilon: must be said; it is what the job may cost")
    return request_body(dataset=dataset, learner=learner, epsilon=epsilon, **more)
