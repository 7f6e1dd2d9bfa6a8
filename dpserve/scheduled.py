"""Schedules: the same job once a period, submitted by a worker in the name of who made the schedule."""

from __future__ import annotations

from typing import Any

from dpserve.transport import Asking, Number, segment
from dpserve.types import Json


class Scheduled(Asking):
    """Scope train, on the dataset."""

    def schedules(self) -> list[Json]:
        """Their own, and those on datasets that the token audits or is steward of: what is asked, how many runs more
        the budgets admit (`alone` without a new block, `fed` with one each period; None: for good), and `until` when.
        """
        return list(self._get("/v1/schedules")["schedules"])

    def add_schedule(
        self, name: str, dataset: str, epsilon: Number, *, every: str = "week", start: str | None = None, **more: Any
    ) -> Json:
        """Ask for the same job once `every` hour, day or week, as long as it is admitted. Nothing is spent now.

        Args:
            name: The schedule's.
            dataset: What the job reads.
            epsilon: Of each job.
            every: The period.
            start: When the first one begins, in UTC, like 2026-01-05T06:00; now when left out.
            more: `learner`, `delta`, `parameters`, `model`, `target`, `promote`, `blocks`, `labels` and `evaluate`, as
                for `submit`; `dry_run`: only tell how long it could be kept.
        """
        body = {"name": name, "dataset": dataset, "epsilon": str(epsilon), "every": every, "start": start, **more}
        given = {key: value for key, value in body.items() if value is not None}
        made: Json = self._transport.ask("POST", "/v1/schedules", again=False, body=given)
        return made

    def remove_schedule(self, name: str) -> Json:
        """Forget one; what it asked for before stays."""
        gone: Json = self._transport.ask("DELETE", f"/v1/schedules/{segment('schedule', name)}", again=False)
        return gone
