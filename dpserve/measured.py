"""What a model is worth, and how rows are spread: measured privately as a job, and stated under a signature."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from dpserve.transport import Asking, Number
from dpserve.types import Job, Json


class Measured(Asking):
    """Evaluations and profiles: scope train or evaluate, on the dataset."""

    def wait(self, number: int, progress: Callable[[int, int], None] = lambda done, total: None) -> Job:
        """The job, once it is issued."""
        raise NotImplementedError

    def plan_evaluation(self, model: str, dataset: str, epsilon: Number, **more: Any) -> Json:
        """Price an evaluation; spends nothing. Arguments as for `evaluate`."""
        priced: Json = self._post("/v1/plans/evaluations", _worth(model, dataset, epsilon, **more))
        return priced

    def evaluate(
        self, model: str, dataset: str, epsilon: Number, *, idempotency_key: str | None = None, **more: Any
    ) -> Json:
        """What a model is worth on private rows, measured as a job that is waited for; what was measured before costs
        nothing again. Figures with intervals (`metrics`), and the signed statement (`envelope`, `proof`).

        Args:
            model: `adult`, `adult@champion` or `adult@2`.
            dataset: Whose rows: what it keeps aside, unless `part` says otherwise.
            epsilon: Of this evaluation.
            idempotency_key: As for `submit`.
            more: `part` ("holdout" or "training"), `against`, another model to be compared with, `group`, a column of
                whose groups each is measured by itself, `scores` (of three or more classes), `delta`, and
                `blocks` of a dataset that grows; `labels` of workers, as for `submit`.
        """
        body = _worth(model, dataset, epsilon, **more)
        job = Job.of(self._post("/v1/evaluations", {**body, "idempotency_key": idempotency_key or str(uuid.uuid4())}))
        self.wait(job.number)
        return self.evaluation(job.number)

    def evaluation(self, number: int) -> Json:
        """A finished evaluation, by its job's number."""
        found: Json = self._get(self._numbered("/v1/evaluations", number))
        return found

    def plan_profile(self, dataset: str, epsilon: Number, **more: Any) -> Json:
        """Price a profile; spends nothing. Arguments as for `profile`."""
        priced: Json = self._post("/v1/plans/profiles", _profile(dataset, epsilon, **more))
        return priced

    def profile(self, dataset: str, epsilon: Number, *, idempotency_key: str | None = None, **more: Any) -> Json:
        """How the rows of a dataset are spread, counted as a job that is waited for; what was counted before costs
        nothing again.

        Args:
            dataset: Its name.
            epsilon: Of this profile.
            idempotency_key: As for `submit`.
            more: `delta`, `part`, `columns` (these alone), and `pairs` of columns that are counted together as well;
                `blocks` of a dataset that grows; `labels` of workers, as for `submit`.
        """
        body = _profile(dataset, epsilon, **more)
        job = Job.of(self._post("/v1/profiles", {**body, "idempotency_key": idempotency_key or str(uuid.uuid4())}))
        self.wait(job.number)
        return self.profile_of(job.number)

    def profile_of(self, number: int) -> Json:
        """A finished profile, by its job's number."""
        found: Json = self._get(self._numbered("/v1/profiles", number))
        return found


def _worth(
    model: str,
    dataset: str,
    epsilon: Number,
    part: str | None = None,
    against: str | None = None,
    group: str | None = None,
    scores: bool = False,
    delta: Number | None = None,
    blocks: str | None = None,
    labels: Sequence[str] = (),
) -> dict[str, Any]:
    more: dict[str, Any] = {"part": part, "against": against, "group": group, "blocks": blocks}
    more |= {"delta": None if delta is None else str(delta), "labels": [*labels] or None}
    said = {name: value for name, value in more.items() if value is not None} | ({"scores": True} if scores else {})
    return {"model": model, "dataset": dataset, "epsilon": str(epsilon), **said}


def _profile(
    dataset: str,
    epsilon: Number,
    delta: Number | None = None,
    part: str | None = None,
    columns: Sequence[str] = (),
    pairs: Sequence[Sequence[str]] = (),
    blocks: str | None = None,
    labels: Sequence[str] = (),
) -> dict[str, Any]:
    more: dict[str, Any] = {"part": part, "delta": None if delta is None else str(delta), "columns": [*columns] or None}
    more |= {"pairs": [[*pair] for pair in pairs] or None, "blocks": blocks, "labels": [*labels] or None}
    said = {name: value for name, value in more.items() if value is not None}
    return {"dataset": dataset, "epsilon": str(epsilon), **said}
