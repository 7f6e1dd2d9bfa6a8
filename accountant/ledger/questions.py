"""What a request will ask of the database, so that it is asked at once: of a distant one that is one round trip for all
questions, and not one for each. Whoever asks more, or less, is answered all the same.
"""

from __future__ import annotations

from accountant.keys import key_rows
from accountant.ledger import job_rows, model_names
from accountant.ledger.families import family_rows
from accountant.store.queries import Queries
from accountant.store.store import question_of_body, question_of_size


def about_request(dataset: str, by: str | None, key: str | None, model: str | None) -> Queries:
    """List what is asked to plan a job, and to admit it."""
    keys = [] if by is None else job_rows.question_of_key(by, key)
    return [*keys, *family_rows.questions(dataset, by), *model_names.questions(dataset if model is None else model)]


def about_job(seq: int, dataset: str, by: str) -> Queries:
    """List what is asked to show a job that was just admitted."""
    return [
        *job_rows.question_of(seq),
        question_of_body(seq),
        question_of_size(),
        *family_rows.questions(dataset, by),
    ]


def about_jobs() -> Queries:
    """List what is asked to show jobs, beside each of them."""
    return [(job_rows.RUNNING, {}), *key_rows.QUESTIONS]


def about_step(seq: int) -> Queries:
    """List what is asked to take a job one step on."""
    return [*job_rows.question_of(seq), question_of_body(seq)]
