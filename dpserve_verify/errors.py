"""The errors of verification, and the roots of those of dpserve (`accountant.errors`).

DpserveError                 exit 1
├── InputError               exit 2   the request is wrong; nothing was changed
│   └── TooMuch                       it takes more memory or time to read than it may
├── BudgetRefused            exit 3   asked, spent, left and what would fit, all public
├── VerificationError        exit 4
│   ├── LedgerInvalid                 tree, checkpoint, entry or state machine
│   │   └── OtherHistory              a ledger does not continue the checkpoint that was kept of it
│   ├── CertificateInvalid            envelope, statement, signature, proof
│   │   └── CertificateRevoked        good once, and revoked since
│   ├── ModelInvalid                  the model's bytes or graph
│   └── KeyInvalid                    missing, readable by others, or not the pinned one
└── LedgerUnavailable        exit 1   the ledger's database, or a file beside it, cannot be used for now
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar


class DpserveError(Exception):
    """A fault of dpserve itself. The log has its kind and its place.

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
        """Return the one error shape: `{"error": {"code", "message", "details"}}`."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


class InputError(DpserveError):
    """The request is wrong, for instance an epsilon of 0 or a parameter that there is not; nothing was changed."""

    code = "bad_input"
    remedy = "the message names what was wrong, where, and what would be right; ask again with that"
    exit_code = 2


class TooMuch(InputError):
    """What came takes more memory or time to read than anything honest of its size."""

    code = "takes_too_much"
    remedy = "send less at once; what is honest takes a fraction of what it may"


class BudgetRefused(DpserveError):
    """The job would take more than a budget or a quota leaves. `details` has what was asked, left and would fit."""

    code = "budget_refused"
    remedy = "ask for at most what `details.would_fit` says; nothing was spent"
    exit_code = 3

    @property
    def would_fit(self) -> Decimal | None:
        """Return the largest epsilon that this learner could still get at this delta; None where there is none."""
        fits = self.details.get("would_fit")
        return None if fits is None or "epsilon" not in fits else Decimal(fits["epsilon"])


class VerificationError(DpserveError):
    """What was pinned by its digest is not what it should be, for instance a script of the dashboard."""

    code = "verification_failed"
    remedy = "trust nothing of it, and ask whoever gave it to you"
    exit_code = 4


class LedgerInvalid(VerificationError):
    """The ledger contradicts itself or what its keys signed, for instance after an old copy was restored."""

    code = "ledger_invalid"
    remedy = "`dpserve ledger audit` says where; restore the newest copy of the home"


class OtherHistory(LedgerInvalid):
    """A ledger of others is smaller than the checkpoint kept here, contradicts it, or does not prove that it continues
    it, for instance as it shows each of its users another history.
    """

    code = "other_history"
    remedy = "keep both checkpoints that the message names, and show them to its other users and to its auditor"


class CertificateInvalid(VerificationError):
    """A certificate, its signature or its proof does not hold, for instance because one byte was changed."""

    code = "certificate_invalid"
    remedy = "trust nothing of it; verify with the keys that were pinned, and audit the ledger"


class CertificateRevoked(CertificateInvalid):
    """The certificate, or that of the model it was edited from, was revoked by `dpserve key revoke`."""

    code = "certificate_revoked"
    remedy = "use another version; the message names one where there is one"


class ModelInvalid(VerificationError):
    """The model's file is not the one that was certified, or its graph holds what no model may."""

    code = "model_invalid"
    remedy = "fetch or export the model again; where that fails as well, audit the ledger"


class KeyInvalid(VerificationError):
    """A key is missing, can be read by others, or is not the pinned one."""

    code = "key_invalid"
    remedy = "restore keys/ from a copy, readable by its owner alone; or name the keys that were pinned with --trust"


class LedgerUnavailable(DpserveError):
    """The ledger's database, or the server that was asked, cannot be used now: locked, full or unreachable."""

    code = "ledger_unavailable"
    remedy = "mend the database and ask again: nothing was changed unless the message says so"
