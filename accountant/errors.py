"""The one error tree of dpserve. Every error carries its objects; edges (command line, REST) only map codes.

DpserveError                 exit 1
├── InputError               exit 2   the request is wrong; nothing was changed
│   ├── SchemaError                   the public schema is wrong or incomplete
│   ├── DataError                     a file does not fit its schema (shown to the steward alone)
│   ├── RecordError                   a record sent for prediction does not fit; names record and field
│   ├── UnknownName                   no dataset, model, job, learner or token of that name
│   ├── NameTaken                     the name is in use
│   ├── WrongState                    a job cannot go from its state to the one asked for
│   └── IdempotencyConflict           an idempotency key came again with another body
├── BudgetRefused            exit 3   asked, spent, left and what would fit, all public
├── VerificationError        exit 4
│   ├── LedgerInvalid                 tree, checkpoint, entry or state machine
│   ├── CertificateInvalid            envelope, statement, signature, proof
│   ├── ModelInvalid                  the model's bytes or graph
│   └── KeyInvalid                    missing, readable by others, or not the pinned one
├── LedgerUnavailable        exit 1   the ledger's database cannot be used for now (locked, full, unreachable)
├── JobFailed                exit 5   it had started: its budget is spent
└── PlanMismatch                      a learner asked for what it had not rehearsed; nothing was drawn
"""

from __future__ import annotations

from typing import Any, ClassVar


class DpserveError(Exception):
    """Root of the tree. `code` is stable and for programs; the message is for people; `details` is plain JSON."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """The one error shape: `{"error": {"code", "message", "details"}}`."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


class InputError(DpserveError):
    code = "bad_input"
    exit_code = 2


class SchemaError(InputError):
    code = "schema_invalid"


class DataError(InputError):
    code = "data_invalid"


class RecordError(InputError):
    code = "record_invalid"


class UnknownName(InputError):
    code = "unknown_name"


class NameTaken(InputError):
    code = "name_taken"


class WrongState(InputError):
    code = "wrong_state"


class IdempotencyConflict(InputError):
    code = "idempotency_conflict"


class BudgetRefused(DpserveError):
    code = "budget_refused"
    exit_code = 3


class VerificationError(DpserveError):
    code = "verification_failed"
    exit_code = 4


class LedgerInvalid(VerificationError):
    code = "ledger_invalid"


class CertificateInvalid(VerificationError):
    code = "certificate_invalid"


class ModelInvalid(VerificationError):
    code = "model_invalid"


class KeyInvalid(VerificationError):
    code = "key_invalid"


class LedgerUnavailable(DpserveError):
    code = "ledger_unavailable"


class JobFailed(DpserveError):
    code = "job_failed"
    exit_code = 5


class PlanMismatch(DpserveError):
    code = "plan_mismatch"
