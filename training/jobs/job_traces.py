"""The spans of a job that is over, stamped by the times of its entries alone: they are public already, to a second.

So a trace says no more of when something happened than the ledger does, and nothing of how long any release took.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from accountant.home import Home
from accountant.ledger import job_rows
from accountant.ledger.families.job_kinds import ENDS, kind_of
from accountant.system import traces
from accountant.system.lazy_import import later
from training.learners.job_words import TUNING

entry_search = later("accountant.ledger.entry_search")  # loads numpy, and traces are mostly off
STEPS = {("reserved", "started"): "wait", ("started", "committed"): "play", ("started", "burned"): "play"} | {
    ("committed", end): "export" for end in ENDS
} | {("reserved", "released"): "wait"}  # fmt: skip


def tell(home: Home, seq: int) -> None:
    """Send the spans of a job that has ended; called once. Does nothing where traces are off."""
    if traces.tracer() is None:
        return
    entries = entry_search.search(home.ledger.log.database, entry_search.Wanted(job=seq), limit=20).entries
    steps = [entry for entry in reversed(entries) if entry.value["type"] in {name for pair in STEPS for name in pair}]
    times = [datetime.fromisoformat(entry.value["time"]) for entry in steps]
    reservation, kinds = steps[0].value, [entry.value["type"] for entry in steps]
    kind = "tune" if TUNING in reservation["parameters"] else kind_of(reservation).word
    facts = {
        "job": seq, "kind": kind, "learner": reservation["learner"],
        "releases": sum(run["count"] for run in reservation["plan"]), "state": kinds[-1],
    }  # fmt: skip
    failed = kinds[-1] == "burned"
    parent = job_rows.trace_of(home.ledger.log.database, seq)
    job_span = traces.record_span("job", parent, times[0], times[-1], failed, **facts)
    for (before, after), (begin, end) in zip(pairwise(kinds), pairwise(times), strict=True):
        traces.record_span(STEPS[before, after], job_span, begin, end, failed and after == "burned")
        if after in ENDS:  # it was signed before it was entered, and not after the second that the entry names
            traces.record_span("sign", job_span, end, end)
