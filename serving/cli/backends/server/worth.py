"""Evaluations and profiles by asking a server, whose worker measures; what it states is verified here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accountant.certificates import profile as profiles
from accountant.certificates import worth as worths
from accountant.errors import InputError
from models.profile import report as profile_report
from models.profile.stated import check as check_profile
from models.worth.stated import check, report_of
from serving.cli.backends.server.asking import asking
from serving.cli.backends.server.pins import pinned
from serving.cli.backends.server.released import as_bytes
from serving.cli.released.reports import write_report

SIGNED = ("envelope", "proof")


def planned_evaluation(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The price of an evaluation; spends nothing."""
    with asking() as service:
        return dict(service.plan_evaluation(**asked))


def evaluated(asked: Mapping[str, Any], key: str | None, out: Path | None) -> dict[str, Any]:
    """An evaluation to its end, with `worth`, and the place of its `statement`; a report goes to `out`."""
    with asking() as service:
        told = service.evaluate(**asked, idempotency_key=key)
        statement = worths.verify(as_bytes(told["envelope"]), told["proof"], pinned(service))
        body = dict(service.job(told["job"]).raw)
    check(statement)
    plain = {name: value for name, value in told.items() if name not in SIGNED}
    if out is not None:
        write_report(report_of(plain, statement.form.claim.unit.contributions), out)
    return body | {"worth": plain, "statement": f"/v1/evaluations/{told['job']}"}


def evaluated_on_rows(name: str, data: Path, schema: Path | None, out: Path | None, public: bool) -> Any:
    """A server takes no rows, and here nobody can tell whether they stand in one of its datasets."""
    raise InputError(
        "data: works where the home is, which makes sure that the rows stand in no dataset; evaluate by --dataset, or "
        "dpserve predict and compare yourself"
    )


def planned_profile(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The price of a profile; spends nothing."""
    with asking() as service:
        return dict(service.plan_profile(**asked))


def profiled(asked: Mapping[str, Any], key: str | None, out: Path | None) -> dict[str, Any]:
    """A profile to its end, with its figures, and the place of its `statement`; a report goes to `out`."""
    with asking() as service:
        told = service.profile(**asked, idempotency_key=key)
        statement = profiles.verify(as_bytes(told["envelope"]), told["proof"], pinned(service))
        body = dict(service.job(told["job"]).raw)
    check_profile(statement)
    plain = {name: value for name, value in told.items() if name not in SIGNED}
    if out is not None:
        profile_report.write(plain, out)
    return body | {"profile": plain, "statement": f"/v1/profiles/{told['job']}"}
