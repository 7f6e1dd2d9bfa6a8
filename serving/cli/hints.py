"""The next step after an error, printed in the same line."""

from __future__ import annotations

from dpserve_verify.errors import BudgetRefused, DpserveError
from dpserve_verify.privacy.outside import KINDS

LISTS = {"dataset": "dataset", "learner": "learner", "model": "model", "job": "job", "name": "token"}
# By words of the message, which say more than its code; nothing where the message leads on by itself.
BY_WORDS = {
    "dpserve ": "",
    "FILL-IN": "",
    "; try again": "",
    "; nothing was charged": "--key takes the key, or the trust.json, of who signed it",
    "has keys already": "`dpserve` alone says what to do next with it",
    "must have none of the bits": "chmod go= it, and think about who may have read it",
    "a budget is given once": "dpserve dataset show says how much of it is used",
}
BY_CODE = {
    "schema_invalid": "dpserve schema draft FILE shows the form",
    "idempotency_conflict": "give another --idempotency-key, or the request as it was",
    "certificate_revoked": "",
    "certificate_invalid": "trust nothing of it; dpserve ledger audit looks at all of this home",
    "model_invalid": "trust nothing of it; dpserve ledger audit looks at all of this home",
    "ledger_invalid": "dpserve ledger audit says where; restore the newest copy",
    "ledger_unavailable": "fix the database and try again: nothing was changed unless it says so",
    "rows_unavailable": "the ledger and all other datasets are as ever",
    "engine_unavailable": "nothing was spent; DPSERVE_ENGINE=local asks the rows here",
    "job_failed": "dpserve dataset show says how much of the budget is used",
}


def next_step(error: DpserveError) -> str:
    """Return the next step after an error; empty where there is none, or the message says it."""
    if isinstance(error, BudgetRefused):
        fits = error.details.get("would_fit") or {}
        kind = next((kind for kind in KINDS if kind in fits), None)
        nothing = "" if "dpserve " in error.message else "nothing fits any more; dpserve dataset show says why"
        return f"try --{kind} {fits[kind]}" if kind else nothing
    if error.code == "unknown_name":
        noun = LISTS.get(error.message.partition("=")[0])
        return f"dpserve {noun} list shows them" if noun else ""
    by_words = (step for words, step in BY_WORDS.items() if words in error.message)
    return next(by_words, BY_CODE.get(error.code, ""))


def with_next_step(error: DpserveError) -> str:
    """Return the error's message, with the next step in brackets."""
    step = next_step(error)
    return error.message + (f" ({step})" if step else "")
