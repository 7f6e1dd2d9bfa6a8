"""The one error tree of dpserve. Every error carries its objects; edges (command line, REST) only map codes.

DpserveError                 exit 1
├── InputError               exit 2   the request is wrong; nothing was changed
│   ├── SchemaError                   the public schema is wrong or incomplete
│   ├── DataError                     a file does not fit its schema (shown to the steward alone)
│   ├── RecordError                   a record sent for prediction does not fit; names record and field
│   ├── UnknownName                   no dataset, model, job, learner or token of that name
│   │   └── NothingServed             a model's name answers nothing now; says what could
│   ├── NameTaken                     the name is in use
│   ├── WrongState                    a job cannot go from its state to the one asked for
│   └── IdempotencyConflict           an idempotency key came again with another body
├── NotInvited               exit 2   a report by nobody whom its campaign asked
├── BudgetRefused            exit 3   asked, spent, left and what would fit, all public
├── Forbidden                exit 3   whoever asks has no grant for it; names scope, object and how it is granted
├── VerificationError        exit 4
│   ├── LedgerInvalid                 tree, checkpoint, entry or state machine
│   │   └── LedgerReplaced            its file was deleted or replaced while it was open
│   ├── CertificateInvalid            envelope, statement, signature, proof
│   │   └── CertificateRevoked        good once, and revoked since
│   ├── ModelInvalid                  the model's bytes or graph
│   └── KeyInvalid                    missing, readable by others, or not the pinned one
├── LedgerUnavailable        exit 1   the ledger's database cannot be used for now (locked, full, unreachable)
│   └── EngineUnavailable             the cluster that DPSERVE_ENGINE names cannot be asked for now
├── JobFailed                exit 5   it had started: its budget is spent
└── PlanMismatch                      a learner asked for what it had not rehearsed; nothing was drawn
"""

from __future__ import annotations

from typing import Any, ClassVar


class DpserveError(Exception):
    """Something unexpected, of which the log knows more.

    The root of the tree. `code` is stable and for programs; the message is for people; `details` is plain JSON;
    `remedy`: what to do, for the table of errors.
    """

    code: str = "internal"  # of the class, but for one that another server told
    remedy: ClassVar[str] = "the server's log has it, and DPSERVE_DEBUG=1 shows it for a command: report it"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """The one error shape: `{"error": {"code", "message", "details"}}`."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


class InputError(DpserveError):
    """The request is wrong; nothing was changed."""

    code = "bad_input"
    remedy = "the message names what was wrong, where, and what would be right; ask again with that"
    exit_code = 2


class SchemaError(InputError):
    """The public schema is wrong or incomplete."""

    code = "schema_invalid"
    remedy = "mend the schema as the message says; `dpserve schema draft FILE` shows the form"


class DataError(InputError):
    """A file does not fit its schema. Shown to the steward alone."""

    code = "data_invalid"
    remedy = "mend the file or its schema; `dpserve schema check SCHEMA --data FILE` tells every problem at once"


class RecordError(InputError):
    """A record sent for prediction does not fit; it names record and field."""

    code = "record_invalid"
    remedy = "send the record with the fields of the model's schema; null where a value is not known"


class UnknownName(InputError):
    """No dataset, model, job, learner or token has that name."""

    code = "unknown_name"
    remedy = "look it up: `dpserve dataset list`, `model list`, `job list`, `learner list`, `token list`"


class NothingServed(UnknownName):
    """A model of that name is there, and none of its versions answers to it now."""

    code = "nothing_served"
    remedy = "promote the version that `details` offers, or name one: NAME@VERSION"


class NameTaken(InputError):
    """The name is in use."""

    code = "name_taken"
    remedy = "take another name; a budget is given once"


class WrongState(InputError):
    """A job, key or version cannot go from its state to the one asked for."""

    code = "wrong_state"
    remedy = "look at what it is now, `details` or `dpserve job show`; what is over is not undone"


class IdempotencyConflict(InputError):
    """An idempotency key came again with another body."""

    code = "idempotency_conflict"
    remedy = "give another key, or the request as it was"


class NotInvited(DpserveError):
    """A report by nobody whom its campaign asked."""

    code = "not_invited"
    remedy = "answer the campaign that asked you, once, with the invitation as it came"
    exit_code = 2


class BudgetRefused(DpserveError):
    """Nothing was spent. What was asked, spent, left and would fit is in `details`, all public."""

    code = "budget_refused"
    remedy = "ask for at most what `details.would_fit` says; nothing was spent"
    exit_code = 3


class Forbidden(DpserveError):
    """Who asks is known, and has no grant for this. Names the scope, the object, and how it is granted."""

    code = "forbidden"
    remedy = "ask whoever may grant it; the message says the command"
    exit_code = 3


class VerificationError(DpserveError):
    """Something that was signed or hashed is not what it should be."""

    code = "verification_failed"
    remedy = "trust nothing of it, and ask whoever gave it to you"
    exit_code = 4


class LedgerInvalid(VerificationError):
    """Tree, checkpoint, entry or state machine."""

    code = "ledger_invalid"
    remedy = "`dpserve ledger audit` says where; restore the newest copy of the home"


class LedgerReplaced(LedgerInvalid):
    """The ledger's file was deleted, or another put in its place, while it was open: to be opened anew and compared."""


class CertificateInvalid(VerificationError):
    """Envelope, statement, signature or proof."""

    code = "certificate_invalid"
    remedy = "trust nothing of it; verify with the keys that were pinned, and audit the ledger"


class CertificateRevoked(CertificateInvalid):
    """It was good, and was revoked since, or what it was derived from."""

    code = "certificate_revoked"
    remedy = "use another version; the message names one where there is one"


class ModelInvalid(VerificationError):
    """The model's bytes or graph."""

    code = "model_invalid"
    remedy = "fetch or export the model again; where that fails as well, audit the ledger"


class KeyInvalid(VerificationError):
    """A key is missing, readable by others, or not the pinned one."""

    code = "key_invalid"
    remedy = "restore keys/ from a copy, readable by its owner alone; or name the keys that were pinned with --trust"


class LedgerUnavailable(DpserveError):
    """The ledger's database cannot be used for now: locked, full, unreachable."""

    code = "ledger_unavailable"
    remedy = "mend the database and ask again: nothing was changed unless the message says so"


class EngineUnavailable(LedgerUnavailable):
    """The cluster that DPSERVE_ENGINE names cannot be asked for now, or its workers may not be: nothing was spent."""

    code = "engine_unavailable"
    remedy = "mend the cluster as the message says; a queued job waits until then, and nothing was spent"


class JobFailed(DpserveError):
    """The job had started: its budget is spent."""

    code = "job_failed"
    remedy = "look into the log of the worker; a new job costs its epsilon again"
    exit_code = 5


class PlanMismatch(DpserveError):
    """A learner asked for what it had not rehearsed; nothing was drawn."""

    code = "plan_mismatch"
    remedy = "a fault of the learner: report it; nothing was drawn"
