"""What lists leave out, as the entries give it. It changes no promise."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dpserve_verify.audit.judge import Value
from dpserve_verify.audit.replay_keys import require_reasons
from dpserve_verify.privacy.soundness import require

# Kind -> its fields besides `type` and `time`.
ARCHIVING = {
    "dataset-archived": "dataset reason by",
    "dataset-unarchived": "dataset reason by",
    "model-archived": "name reason by",
    "model-unarchived": "name reason by",
}


@dataclass
class Archive:
    """The datasets and models that are archived, by what they are and their name."""

    names: set[tuple[str, str]] = field(default_factory=set)

    def judge(self, value: Value, datasets: Collection[str], models: Collection[str]) -> None:
        """Judge that a dataset or a certified model of that name is archived once, and unarchived after that."""
        require_reasons(value)
        what, _, act = value["type"].partition("-")
        name, known = (value["dataset"], datasets) if what == "dataset" else (value["name"], models)
        require(type(name) is str and name in known, f"{what}={name!r:.80}: there is none of that name before")
        begins = act == "archived"
        require(((what, name) in self.names) is not begins, f"{what}={name!r:.80}: is so already")
        (self.names.add if begins else self.names.discard)((what, name))
