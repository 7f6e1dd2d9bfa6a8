"""What is left of a budget, as every door says it: a share, and the largest single job that would be admitted now."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Any

from accountant.budget import Budget
from accountant.privacy.one_job import OneJob


def left_to_json(share: float, job: OneJob) -> dict[str, Any]:
    """What is left as the doors tell it: the share (six places), and the budget of `one_job`, None where none fits.
    `noise` says of which jobs alone it is told.
    """
    told = Budget(job.epsilon, job.delta).to_json() if job.epsilon else None
    return {"share": f"{share:.6f}", "one_job": told and told | ({"noise": "gaussian"} if job.gaussian else {})}


def left_words(left: Mapping[str, Any], what: str = "job") -> str:
    """The same in words, for a line of text. A share is rounded down, and never to nothing."""
    share, job = float(left["share"]), left["one_job"]
    told = "less than 0.1 %" if 0 < share < 0.001 else f"{floor(1000 * share) / 10:.1f} %"
    if job is None:
        return f"{told}: no further {what} fits"
    noise = " by Gaussian noise" if job.get("noise") else ""
    return f"{told}: one more {what} of at most epsilon {job['epsilon']} at delta {job['delta']}{noise}"
