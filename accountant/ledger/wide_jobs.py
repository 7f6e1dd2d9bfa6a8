"""Jobs that an earlier version let read blocks they were not charged to: such a job gets no certificate, for its words
would be false. `accountant.audit.repair` charges what was read.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from accountant.log.newest import after_of
from accountant.store.store import body_at
from accountant.store.tables import block_table, entry_table
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.canonical_bytes import Key
from dpserve_verify.log.entry import read_entry

_RESERVATION = Key("reservation")


def require_charged_blocks(connection: Connection, seq: int) -> None:
    """Raise LedgerInvalid where a job has read a block that it was not charged to: it was reserved before its dataset
    grew, and an earlier version started it, or went on with it, by the accounts of every block.
    """
    stored = read_entry(seq, body_at(connection, seq)).value
    where = block_table.c.dataset == stored["dataset"]
    blocks = set(connection.execute(select(block_table.c.seq).where(where)).scalars())
    if "window" in stored or not blocks:
        return
    query = select(entry_table).where(entry_table.c.seq > min(blocks)).order_by(entry_table.c.seq)
    for number, body in connection.execute(query.execution_options(yield_per=1000)):
        raw = bytes(body)
        if _RESERVATION.first_integer(raw) != seq:
            continue
        step = read_entry(number, raw).value
        charged = {family for line in after_of(raw) for family in (line["family"], *line.get("also", ()))}
        went_on = step["type"] == "resumed" and "window" not in step
        if went_on or (step["type"] == "started" and charged & blocks):
            raise LedgerInvalid(
                f"job {seq}: has read blocks that it was not charged to, by a fault of an earlier version (entry "
                f"{number}): it gets no certificate; charge it by dpserve home repair --reason TEXT, and ask for "
                "another model",
                entry=number,
            )
