"""Put a home right whose accounts an earlier version left wrong: jobs that were reserved before their dataset grew had
stepped by the accounts of every block, so that sums fell below zero, or people were read who were not charged.

What is wrong follows from the entries (`dpserve_verify.audit.replay_repair`); the sums of the auditor become those
of the index, each job is charged to every block that it read, and signed entries say so with a reason.
"""

from __future__ import annotations

import shutil

from sqlalchemy import delete, insert, update

from accountant.home import Home
from accountant.log.entries import Writer, dumps
from accountant.store import engines
from accountant.store.store import leaves
from accountant.store.tables import analyst_table, family_table
from dpserve_verify.audit.replay import Replay
from dpserve_verify.audit.replay_budget import FamilyState
from dpserve_verify.errors import InputError, LedgerInvalid


def repair(home: Home, reason: str, by: str) -> list[str]:
    """Append a `repaired` entry for each dataset and each analyst whose jobs an earlier version took for jobs on every
    block, and set the accounts to what the entries give. Return a line for each thing that was put right.

    Args:
        reason, by: one line of at most 500 and 200 characters; they stay in the ledger.

    Raises:
        InputError: nothing is to be repaired, or `reason` or `by` is not such a line.
        LedgerInvalid: something else is wrong with an entry; nothing was written.
    """
    trust = home.trust
    with home.ledger.log.writing() as writer:
        engines.allow_standing(writer.connection)
        replay = Replay(trust)
        wrong: dict[int, str] = {}
        for seq, body in leaves(writer.connection):
            try:
                replay.read(seq, body)
            except LedgerInvalid as error:
                wrong[seq] = error.message
        repairs = replay.repairs
        explained = [seq for entries in repairs.entries.values() for seq in entries]
        for seq in [*explained, *(seq for seq, _ in repairs.repaired)]:
            wrong.pop(seq, None)
        if wrong:
            raise LedgerInvalid(f"{min(wrong.items())[1]}: is nothing that can be repaired; nothing was written")
        before = len(repairs.notes)
        for dataset in sorted(dataset for dataset, jobs in repairs.jobs.items() if jobs):
            for analyst in repairs.analysts(dataset):
                _append(writer, replay, dataset, analyst, {"reason": reason, "by": by})
            _set_accounts(writer, replay, dataset)
        if len(repairs.notes) == before:
            raise InputError("home: nothing is to be repaired; dpserve ledger audit says how it stands")
    for seq, job in replay.jobs.items():
        if job.state == "committed" and job.issued is None and seq in repairs.charged:
            shutil.rmtree(home.jobs / str(seq), ignore_errors=True)  # it gets no certificate, so nobody finishes it
    return repairs.notes[before:]


def _append(writer: Writer, replay: Replay, dataset: str, analyst: str, why: dict[str, str]) -> None:
    """Append one `repaired` entry, and have the auditor judge it as it will stand."""
    repairs = replay.repairs
    fields = repairs.fields(dataset, analyst)
    after = repairs.lines_after(replay.books, dataset, analyst)
    seq = writer.append("repaired", **fields, **why, after=after)
    replay.read(seq, writer.appended[-1][1])


def _set_accounts(writer: Writer, replay: Replay, dataset: str) -> None:
    """Set the rows of every account of a dataset to the auditor's sums."""
    books, connection = replay.books, writer.connection
    state = books.datasets[dataset]
    blocks = books.blocks.known[dataset].blocks
    names = [*state.families, *state.held, *state.people]
    names += [name for block in blocks for name in (block.own, block.held) if name is not None]
    for name in names:
        family = books.families[name]
        values = {"used": dumps(family.sums()), "reserved": dumps(family.stored(family.reserved))}
        connection.execute(update(family_table).where(family_table.c.id == name).values(**values))
        _set_analysts(writer, name, family)


def _set_analysts(writer: Writer, name: str, family: FamilyState) -> None:
    """Set what each analyst used of an account; the shares that were set for the family stay where they stand."""
    table, connection = analyst_table.c, writer.connection
    for analyst, used in family.analysts.items():
        where = (table.family == name) & (table.name == analyst)
        if not connection.execute(update(analyst_table).where(where).values(used=dumps(family.stored(used)))).rowcount:
            values = {"family": name, "name": analyst, "share": None, "used": dumps(family.stored(used))}
            connection.execute(insert(analyst_table).values(**values))
    analysts = [*family.analysts]
    connection.execute(delete(analyst_table).where((table.family == name) & table.name.not_in(analysts)))
