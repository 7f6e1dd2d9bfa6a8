"""Learners of others that a steward admits."""

from __future__ import annotations

from typing import Annotated, Literal

from dpserve_verify.entries.entry import Hex, Index, Line, Name, ReasonedForm
from dpserve_verify.formats.forms import Limits, form_field
from dpserve_verify.privacy.declared import NAME


class LearnerAdmitted(ReasonedForm):
    """A learner of others is admitted, after a check that played it on neighbours."""

    type: Literal["learner-admitted"]
    name: Name
    digest: Hex = form_field(about="sha256 of the class's name and the text")
    of_class: Line = form_field(key="class")
    author: Line
    report: Hex = form_field(about="sha256 of the signed report of the check")
    neighbours: Annotated[int, Limits(low=0)] = form_field(
        about="how many it was played on; 0 of a program that reads rows"
    )
    datasets: Annotated[list[Name], Limits(shortest=1)] | None = form_field(
        absent=True, about="for whose jobs alone it may run"
    )
    vouched: Literal["epsilon", "mu"] | None = form_field(absent=True, about="what a program that reads rows keeps")
    declared: Annotated[list[Annotated[str, Limits(pattern=f"^{NAME.pattern}$")]], Limits(shortest=1)] | None = (
        form_field(absent=True, about="classes that answer queries of its own, by a sensitivity that is declared")
    )


class LearnerRemoved(ReasonedForm):
    """An admission ends."""

    type: Literal["learner-removed"]
    name: Name
    admitted: Index = form_field(about="index of the entry that ends")
