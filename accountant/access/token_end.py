"""The end of a token, and what ends with it: said where it is revoked, and found in one transaction with that."""

from __future__ import annotations

from dataclasses import dataclass

from accountant.access.grants import MAX_JOBS, MAX_SEQ, sound_grants
from accountant.access.tokens import Token, end, sound_tokens
from accountant.ledger import job_rows
from accountant.ledger.families.records import SeenJobs, State
from accountant.ledger.ledger import Ledger
from accountant.store.tables import grant_table, token_table


@dataclass(frozen=True)
class TokenEnd:
    """What ends with a token: the `schedules` that it made, by name, and the `grants` of one that acted for itself,
    which are nobody's from then on, also where its name is used again. Where its principal lives on, by another token
    or at the command line, they stay, and none is listed. `jobs` were asked for by its principal, have not started, and
    go on.
    """

    token: Token
    grants: tuple[int, ...] = ()
    schedules: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()


def end_token(ledger: Ledger, name: str) -> TokenEnd:
    """End a token, permanently. UnknownName where no good one has that name."""
    with ledger.log.writing() as writer:
        token, schedules = end(writer, name)
        acting, _ = sound_tokens(writer.signed, token_table.c.principal == token.principal)
        asked = SeenJobs(token.principal, (), ())
        jobs = job_rows.page(writer.connection, None, State.RESERVED, None, MAX_SEQ, MAX_JOBS, asked)
        is_over = token.acts_for_itself and not acting
        granted = sound_grants(writer.signed, grant_table.c.principal == token.principal)[0] if is_over else []
    held = tuple(each.index or 0 for each in granted)
    return TokenEnd(token, held, tuple(schedules), tuple(job.seq for job in jobs))
