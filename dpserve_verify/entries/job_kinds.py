"""What a reserved job is for, as its entry says: the auditor's own reading, apart from the writer's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

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


def read_kind(value: Mapping[str, Any]) -> JobKind:
    """Read the kind from the keys of a `reserved` entry. LedgerInvalid where keys of several kinds stand together."""
    match value:
        case {"profile": _}:
            return _of_dataset(value, "profile", JobKind.PROFILE)
        case {"contributes": _}:
            return _of_dataset(value, "contributes", JobKind.CONTRIBUTION)
        case {"evaluates": _}:
            return JobKind.EVALUATION
        case {"against": _}:
            raise LedgerInvalid("against: stands in evaluations alone")
        case {"part": _}:
            raise LedgerInvalid("part: what is kept aside is for evaluations and profiles alone")
        case _:
            return JobKind.TRAINING


def _of_dataset(value: Mapping[str, Any], mark: str, kind: JobKind) -> JobKind:
    """Judge a job that measures a dataset: it names no model, no target, and promotes nothing."""
    require(value["model"] == "", f"model={value['model']!r:.80}: a {mark} makes none")
    misplaced = sorted(value.keys() & {"target", "promote", *KEYS} - {mark})
    require(not misplaced, f"{mark}: does not go with {misplaced}")
    return kind
