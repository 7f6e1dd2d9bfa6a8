"""Descriptions of fields that mean the same at every door, for those whose schema has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORDS = {
    "against": "another model, to be compared with",
    "although_not_better": "also where it is not shown to be better than a constant answer",
    "blocks": "of a dataset that grows: all, last:12, 3-7 or 4",
    "by": "who asked: a principal",
    "campaign": "the campaign's name",
    "certificate": "entry and digests of what certifies it",
    "chosen": "of a tuned job: the setting that was kept, and its score",
    "classes": "in the order of the probabilities",
    "command": "what promotes that version",
    "count_within": "a count is within so many rows of the true one, 95 times of 100",
    "dataset": "the dataset's name",
    "delta": "a decimal; the dataset's when left out",
    "draft": "the draft's id",
    "dry_run": "say what would come of it, and do nothing",
    "entry": "number of the ledger's entry",
    "error": "why it came to nothing; null where it did not",
    "evaluate": "epsilon at which the model is evaluated afterwards, charged together",
    "evaluates": "entry of the model that it evaluates",
    "expires": "when it ends, UTC; null: never",
    "family": "the family's id",
    "grant": "the grant's number",
    "group": "a column by whose groups each is measured",
    "hashes": "from the leaf up",
    "idempotency_key": "the same key with the same request is the same job, and spends once",
    "if_better": "only where a statement shows that it is better than the champion",
    "job": "the job's number",
    "leaf": "number of the entry",
    "learner": "the learner's name",
    "model": "the model's name; of one version name@version",
    "next": "`after` of the next page; null: this is the last one",
    "offer": "the newest version that could answer to the name",
    "part": "which rows: holdout, training, or all",
    "population": "the population's name",
    "predictions": "a label or a number for each record, in their order",
    "principal": "who may: what tokens act for",
    "probabilities": "of each record, in the order of `classes`",
    "problems": "what is wrong; empty where nothing is",
    "promote": "make the model champion of its name at once",
    "proof": "a C2SP tlog-proof: that the entry is in the ledger",
    "reason": "why; it stays in the ledger permanently",
    "received": "bytes that have come",
    "records": "each with every feature, null where a value is not known; 20,000 at most",
    "replaces": "the version that answered to the name before",
    "rounds": "releases of the plan",
    "scores": "of three classes or more: AUROC and log loss as well",
    "serves": "the version that answers to the name now",
    "size": "entries in the tree",
    "target": "the column that is predicted",
    "time": "when it was asked for, UTC",
    "tuning": "the settings to try, as one job: grid, and runs on average",
    "version": "the version's number",
    "version_state": "champion, candidate, retired or revoked; null: there is no model yet",
    "waiting": "why it still waits in the queue, where that is known",
}


def in_words(name: str, shape: Mapping[str, Any]) -> dict[str, str]:
    """Return the description of a field: its schema's own, else the one in WORDS, if any."""
    words = shape.get("description") or WORDS.get(name)
    return {"description": words} if words else {}
