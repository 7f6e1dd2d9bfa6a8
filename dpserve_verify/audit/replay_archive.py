"""What is archived or withdrawn, as the entries give it. It changes no promise."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpserve_verify.audit.judge import Value
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay


@dataclass
class Archive:
    """The datasets and models that are archived, by what they are and their name."""

    names: set[tuple[str, str]] = field(default_factory=set)

    def require_open(self, value: Value) -> None:
        """Judge a job, a schedule or a block: its dataset is not archived."""
        name = value["asked"]["dataset"] if value["type"] == "schedule-added" else value["dataset"]
        require(("dataset", name) not in self.names, f"dataset={name!r:.80}: is archived, and takes no further one")

    def judge(self, value: Value, datasets: Collection[str], models: Collection[str]) -> None:
        """Judge that a dataset or a certified model of that name is archived once, and unarchived after that."""
        what, _, act = value["type"].partition("-")
        name, known = (value["dataset"], datasets) if what == "dataset" else (value["name"], models)
        require(name in known, f"{what}={name!r:.80}: there is none of that name before")
        begins = act == "archived"
        require(((what, name) in self.names) is not begins, f"{what}={name!r:.80}: is so already")
        (self.names.add if begins else self.names.discard)((what, name))


def judge_withdrawn(replay: Replay, value: Value) -> None:
    """Judge `dataset-withdrawn`: no job on the dataset stands, and nothing that names it would pass to another one of
    its name. It is taken out of the books.
    """
    name, families = value["dataset"], replay.books.family_names(value["dataset"])
    standing = [number for number, job in replay.jobs.items() if job.dataset == name and job.state != "released"]
    require(not standing, f"dataset: job {standing[:1]} on it was reserved, and not given back")
    require(not replay.charges.on(value["registered"]), "dataset: a release made elsewhere was charged to it")
    replay.learners.require_none(name)
    dataset = replay.books.withdraw(value)
    founded = families if dataset.families == (dataset.uuid,) else []
    grants = replay.access.standing([("dataset", name), *(("family", called) for called in founded)], value["time"])
    require(not grants, f"dataset: grant {grants[:1]} is on it")
    living = {at: state for at, state in replay.schedules.states.items() if state.ended is None}
    asking = [at for at, state in living.items() if state.asked.get("dataset") == name]
    require(not asking, f"dataset: schedule {asking[:1]} is on it")
    replay.archive.names.discard(("dataset", name))
