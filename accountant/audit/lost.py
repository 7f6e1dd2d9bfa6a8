"""What was paid for and is not in the home any more: signed statements, certified models, open campaigns.

None of it is the ledger's: every entry stands, and what was spent is remembered. But a statement is drawn once, and an
owner answers once, so whoever reads "sound" must read this as well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dpserve_verify.audit.replay import Replay
from dpserve_verify.entries.job_kinds import JobKind

FOLDERS = {
    JobKind.EVALUATION: ("evaluations", "what a model is worth"),
    JobKind.PROFILE: ("profiles", "a profile of {dataset}"),
}


def find_lost(home: Path, replay: Replay) -> tuple[str, ...]:
    """Return a line for each statement, model and open campaign that the entries know of and the home has no files of.
    What is being put in its place is in `jobs/`, and is not lost.
    """
    waiting = {folder.name for folder in (home / "jobs").glob("*") if folder.is_dir()}
    return (*_statements(home, replay, waiting), *_models(home, replay, waiting), *_campaigns(home, replay))


def _statements(home: Path, replay: Replay, waiting: set[str]) -> Iterator[str]:
    for seq, job in replay.jobs.items():
        if job.issued is None or job.kind not in FOLDERS or str(seq) in waiting:
            continue
        folder, words = FOLDERS[job.kind]
        if not any((home / folder / str(seq)).glob("*.dsse.json")):
            yield f"{folder}/{seq}: {words.format(dataset=job.dataset)}, stated by entry {job.issued}"
    for seq, entry in replay.attacks.stated.items():
        if not any((home / "attacks" / str(seq)).glob("*.dsse.json")):
            yield f"attacks/{seq}: what an attack on its model shows, stated by entry {entry}"


def _models(home: Path, replay: Replay, waiting: set[str]) -> Iterator[str]:
    certified = Counter(name for entry, (name, _) in replay.models.items() if entry not in replay.keys.revocations)
    edits = sum(name.startswith("edit-") for name in waiting)
    placing = Counter(job.model for seq, job in replay.jobs.items() if str(seq) in waiting)
    for name, count in sorted(certified.items()):
        there = sum(each.name.isdigit() and each.is_dir() for each in (home / "models" / name).glob("*"))
        if there + placing[name] + edits < count:
            yield f"models/{name}: {count - there} of {count} certified versions"


def _campaigns(home: Path, replay: Replay) -> Iterator[str]:
    known = set[int]()
    for path in (home / "campaigns").glob("*/job.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if (path.parent / "reports.db").exists() and (path.parent / "campaign.dsse.json").exists():
                known.add(int(json.loads(path.read_bytes())["job"]))
    for seq, campaign in replay.campaigns.states.items():
        job = replay.jobs.get(seq)  # None: its reservation was refused after the campaign was judged
        if job is not None and campaign.open and job.state == "started" and seq not in known:
            yield f"campaigns: what owners of {job.dataset} reported for job {seq}, which nobody has learnt from yet"
