"""Which version of a model answers, and which models lists show."""

from __future__ import annotations

from typing import Literal

from dpserve_verify.entries.entry import Count, Index, Name, ReasonedForm
from dpserve_verify.formats.forms import form_field


class ModelPlaced(ReasonedForm):
    """A version is taken out of service, or comes back."""

    type: Literal["model-retired", "model-restored"]
    name: Name
    version: Count
    issued: Index


class ModelPromoted(ReasonedForm):
    """A version answers to the model's name."""

    type: Literal["model-promoted"]
    name: Name
    version: Count
    issued: Index
    replaces: Count | None = form_field(absent=True)
    worth: Index | None = form_field(absent=True, about="the statement that speaks for it")


class ModelArchived(ReasonedForm):
    """Lists leave a model out, or let it in again."""

    type: Literal["model-archived", "model-unarchived"]
    name: Name
