"""Metrics of what an operator keeps up: disks, the certificate that is served, backups, schedules, witnesses.

Nothing of it depends on the rows: times of files, coarse sizes of disks, and what entries of the ledger say.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from accountant.home import Home, local, settings
from accountant.home.backup_time import last_backup
from accountant.ledger.schedules import schedules
from dpserve_verify.errors import DpserveError
from dpserve_verify.log.cosignature import cosignatures
from dpserve_verify.log.notes import parse_checkpoint, parse_note
from dpserve_verify.log.witness_policy import printable_name, read_witness_policy
from dpserve_verify.log.witnessed import read_witnessed

if TYPE_CHECKING:
    from accountant.log.entries import Signed

DISK_STEPS = 100  # of a disk: finer figures would tell how many rows were registered
UNREADABLE = "(the policy cannot be read)"  # in place of the names of witnesses


@dataclass(frozen=True, eq=False)
class MachineGauges(Collector):
    """What one server stands on: room on its disks, and until when the certificate that it serves is good, in seconds
    since 1970; 0: it speaks no TLS.
    """

    home: Path
    certificate_end: float

    def collect(self) -> Iterable[Metric]:
        """Ask the file systems now."""
        free = GaugeMetricFamily(
            "dpserve_disk_free_bytes",
            "Bytes that are left to this user on the disk of the home, and on this machine's own (DPSERVE_LOCAL) where "
            "that is another, in steps of a hundredth of it: not how much a file of rows takes.",
            labels=["folder"],
        )
        size = GaugeMetricFamily(
            "dpserve_disk_size_bytes", "Bytes that such a disk holds in all for this user.", labels=["folder"]
        )
        for name, folder in self._disks():
            try:
                about = os.statvfs(folder)
            except OSError:  # it is away, and all else is said
                continue
            whole = (about.f_blocks - about.f_bfree + about.f_bavail) * about.f_frsize
            step = max(1, whole // DISK_STEPS)
            free.add_metric([name], about.f_bavail * about.f_frsize // step * step)
            size.add_metric([name], whole)
        yield from (free, size)
        ends = GaugeMetricFamily(
            "dpserve_tls_not_after_timestamp_seconds", "When the certificate that this server serves ends."
        )
        if self.certificate_end:
            ends.add_metric([], self.certificate_end)
        yield ends

    def _disks(self) -> Iterator[tuple[str, Path]]:
        yield "home", self.home
        own = local(self.home)
        with suppress(OSError):
            if own.stat().st_dev != self.home.stat().st_dev:
                yield "local", own


def upkeep(home: Home, signed: Signed, retired: Collection[str]) -> Iterable[Metric]:
    """Yield what is of one ledger and home, whatever server is asked. `retired`: datasets whose schedules nobody
    expects.
    """
    backup = GaugeMetricFamily(
        "dpserve_backup_timestamp_seconds",
        "When the newest good backup of the home was made, or put back; before the first: when the home was begun.",
    )
    begun = datetime.fromisoformat(signed.entry(0).value["time"]).timestamp()
    backup.add_metric([], last_backup(home.path) or begun)
    yield backup
    yield from _schedules(signed, retired)
    yield from _witnesses(home.path, signed.size)


def _schedules(signed: Signed, retired: Collection[str]) -> Iterable[Metric]:
    """Yield when each schedule had its last job, and is to have its next; none of one that was removed."""
    last = GaugeMetricFamily(
        "dpserve_schedule_last_timestamp_seconds",
        "When the period of its last job began; 0: it had none yet.",
        labels=["schedule"],
    )
    following = GaugeMetricFamily(
        "dpserve_schedule_next_timestamp_seconds",
        "When its next job is due; in the past: it is late. None of a schedule that stopped.",
        labels=["schedule"],
    )
    stopped = GaugeMetricFamily(
        "dpserve_schedule_stopped", "1: it was refused, and submits no jobs any more.", labels=["schedule"]
    )
    for rule in schedules(signed)[0]:
        if rule.asked["dataset"] in retired:
            continue
        last.add_metric([rule.name], rule.begin_of(rule.last[0]) if rule.last else 0)
        stopped.add_metric([rule.name], float(rule.stopped is not None))
        if rule.stopped is None:
            following.add_metric([rule.name], rule.begin_of(rule.last[0] + 1 if rule.last else 0))
    yield from (last, following, stopped)


def _witnesses(home: Path, size: int) -> Iterable[Metric]:
    """Yield how far each witness of DPSERVE_WITNESS_POLICY is behind a ledger of `size` entries."""
    behind = GaugeMetricFamily(
        "dpserve_witness_behind_entries",
        "Entries after the checkpoint that this witness of DPSERVE_WITNESS_POLICY cosigned; all of them where it did "
        "not cosign the one that is kept.",
        labels=["witness"],
    )
    at = GaugeMetricFamily(
        "dpserve_witness_timestamp_seconds",
        "When it cosigned that, by its own clock; 0: it did not.",
        labels=["witness"],
    )
    for name, (seen, time) in _cosigned(home).items():
        behind.add_metric([name], max(0, size - seen))
        at.add_metric([name], time)
    yield from (behind, at)


def _cosigned(home: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time that each witness of the policy vouches for in the checkpoint that is kept; zeros
    where it does not.
    """
    file = settings()["DPSERVE_WITNESS_POLICY"].value
    if not file:
        return {}
    try:
        policy = read_witness_policy(Path(file))
    except DpserveError:
        return {UNREADABLE: (0, 0)}
    found = dict.fromkeys((printable_name(each.name) for each in policy.witnesses), (0, 0))
    with suppress(DpserveError):  # damaged, or of another policy: nobody vouches for it
        note = read_witnessed(home)
        if note is not None:
            size = parse_checkpoint(note).size
            for each in cosignatures(parse_note(note), policy):
                found[printable_name(each.witness)] = (size, each.time)
    return found
