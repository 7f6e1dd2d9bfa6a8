"""Words of jobs beside those of learners: what stands among the parameters, and what is said of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from accountant.ledger.families.families import Dataset

TUNING = "private-tuning"  # no parameter of a learner can be called so
CHOSEN = "chosen-by-auto"  # why it is this learner, among a job's parameters: none of a learner can be called so
STATES = {  # of a job, for people
    "reserved": "waiting", "started": "running", "committed": "signing",
    "issued": "done", "burned": "failed", "released": "given back",
}  # fmt: skip
IN_CAMPAIGN = "in a campaign"  # of a job that pays for sums of one elsewhere: it is burned, and has not failed
CLOSES = "this job takes the whole total: nothing is admitted after it, even where the total is raised later"


def state_words(job: Mapping[str, Any]) -> str:
    """Say in a word or two how far a job is, from its JSON."""
    return IN_CAMPAIGN if "contributes" in job else STATES.get(job["state"], str(job["state"]))


def chosen_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return why it is this learner, where a public rule chose it; else nothing."""
    return {"chosen_by_auto": parameters[CHOSEN]} if CHOSEN in parameters else {}


def short_reason(why: str) -> str:
    """Return why it is this learner, without the figures in brackets and its name behind them."""
    return re.sub(r"( \([^)]*\))?: [a-z-]+$", "", why)


def window_to_json(dataset: Dataset) -> dict[str, Any]:
    """Return the blocks that a job reads, of a dataset that grows; else nothing."""
    return {} if dataset.window is None else {"window": [*dataset.window]}


def closing(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the line that says of a job, if it does, that it closes its family."""
    return [("closes", CLOSES)] if body.get("whole") and body["state"] != "released" else []
