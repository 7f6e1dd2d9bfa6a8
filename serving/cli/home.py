"""Commands of the operator: the home itself."""

from __future__ import annotations

from typing import Annotated

import typer

from accountant.home import Home
from serving.cli.backends.user import require_access, this_user
from serving.cli.terminal import Json, show


def repair(
    reason: Annotated[str, typer.Option(help="Why. It stays in the ledger permanently.")],
    json: Json = False,
) -> None:
    """Put accounts right that an earlier version left wrong, by entries that say so.

    A job that was reserved before its dataset grew had stepped by the accounts of every block. Each job is charged to
    every block that it read, sums that fell below zero are set to what the entries give, and the audit accepts it. A
    model whose certificate names too few blocks stays as it is: revoke it (dpserve key revoke).

    \b
    dpserve home repair --reason "jobs that waited when block 2 was appended"
    """
    from accountant.audit.repair import repair as repair_home  # loads the audit
    from accountant.ledger.families.records import Why

    home = Home.open()
    require_access(home, "admin")
    why = Why(this_user(), reason)
    notes = repair_home(home, why.reason, why.by)
    show(json, {"repaired": notes}, "\n".join(notes))
