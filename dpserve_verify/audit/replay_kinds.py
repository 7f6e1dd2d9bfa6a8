"""What a reserved job is for, as its entry says: the auditor's own reading, apart from the writer's."""

from __future__ import annotations

from enum import StrEnum

from dpserve_verify.audit.judge import Value, require_hex
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.soundness import require


class JobKind(StrEnum):
    """What a job is for. The value follows its number in what the auditor says."""

    TRAINING = "makes a model"
    EVALUATION = "evaluates a model"
    PROFILE = "profiles a dataset"
    CONTRIBUTION = "adds to the sums of a campaign elsewhere"


KEYS = ("evaluates", "against", "profile", "contributes")  # of an entry: what a training does not say
OF_DATASET = {JobKind.PROFILE, JobKind.CONTRIBUTION}  # name no model


def read_kind(value: Value) -> JobKind:
    """Read the kind from the keys of a `reserved` entry. LedgerInvalid where keys of several kinds stand together."""
    match value:
        case {"profile": _}:
            return _of_dataset(value, "profile", JobKind.PROFILE)
        case {"contributes": _}:
            require_hex(value, "contributes")
            return _of_dataset({**value, "contributes": True}, "contributes", JobKind.CONTRIBUTION)
        case {"evaluates": _}:
            return JobKind.EVALUATION
        case {"against": _}:
            raise LedgerInvalid("against: stands in evaluations alone")
        case {"part": _}:
            raise LedgerInvalid("part: what is kept aside is for evaluations and profiles alone")
        case _:
            return JobKind.TRAINING


def _of_dataset(value: Value, mark: str, kind: JobKind) -> JobKind:
    """Judge a job that measures a dataset: it names no model, no target, and promotes nothing."""
    require(value[mark] is True, f"{mark}: must be true where it stands")
    require(value["model"] == "", f"model={value['model']!r:.80}: a {mark} makes none")
    misplaced = sorted(value.keys() & {"target", "promote", *KEYS} - {mark})
    require(not misplaced, f"{mark}: does not go with {misplaced}")
    return kind


# Of some kinds of entries, the fields that one may have besides those that each has.
OPTIONAL = {
    "token-created": frozenset({"limits"}),
    "dataset-registered": frozenset(
        "new_people family_name targets holdout cells person query refined ids firsts institutions".split()  # noqa: SIM905
    ),
    "dataset-joined": frozenset({"targets", "cells", "query", "refined", "ids", "firsts"}),
    "dataset-appended": frozenset({"period", "new_rows", "query", "ids", "each_block"}),
    "person-total": frozenset({"carried", "largest", "reason", "by"}),
    "reserved": frozenset({"whole", "bound", "window", "labels", "schedule", "made_from"}),
    "charged": frozenset({"document", "contributions", "blocks", "window", "another", "delta", "releases"}),
    "learner-admitted": frozenset({"datasets", "vouched", "declared"}),
    "resumed": frozenset({"window"}),
    "model-promoted": frozenset({"replaces", "worth"}),
    "rows-compared": frozenset({"data"}),
}
