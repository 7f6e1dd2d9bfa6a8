"""What a request will ask of the database, so that it is asked at once: of a distant one that is one round trip for all
questions, and not one for each. Whoever asks more, or less, is answered all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountant.keys import key_rows
from accountant.ledger import evaluations, job_rows, model_names
from accountant.ledger.families import family_rows
from accountant.ledger.families.records import Job
from accountant.store.queries import Queries
from accountant.store.store import question_of_body, question_of_size


def about_request(dataset: str, by: str | None, key: str | None, model: str | None) -> Queries:
    """List what is asked to plan a job, and to admit it."""
    keys = [] if by is None else job_rows.question_of_key(by, key)
    return [*keys, *family_rows.questions(dataset, by), *model_names.questions(dataset if model is None else model)]


def about_plan(dataset: str, by: str, model: str) -> Queries:
    """List what is asked to show the price of a job in a form."""
    about = [*about_request(dataset, by, None, model)]
    about += [*family_rows.questions(dataset, None), *model_names.questions_of_promoting(by)]
    return [*about, evaluations.question_of_ended(dataset)]


def about_job(seq: int) -> Queries:
    """List what is asked to show a job: of itself, and of the evaluation that may have been reserved with it."""
    return [each for at in (seq, seq + 1) for each in about_step(at)]


def about_admitted(seq: int, dataset: str, by: str) -> Queries:
    """List what is asked to show a job that was just admitted."""
    return [*about_step(seq), question_of_size(), *family_rows.questions(dataset, by)]


def about_reserved(job: Job, entry: Mapping[str, Any]) -> Queries:
    """List what is asked to show a job, once it is known what its `reserved` entry says."""
    issued = [] if job.issued is None else [question_of_body(job.issued)]
    return [*issued, *family_rows.questions(entry["dataset"], entry["by"], entry.get("part"))]


def about_jobs() -> Queries:
    """List what is asked to show jobs, beside each of them."""
    return [(job_rows.RUNNING, {}), *key_rows.QUESTIONS]


def about_step(seq: int) -> Queries:
    """List what is asked to take a job one step on."""
    return [*job_rows.question_of(seq), question_of_body(seq)]
