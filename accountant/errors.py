"""The errors of dpserve, but for those of verification (`dpserve_verify.errors`). Every error carries its objects;
edges (command line, REST) only map codes.

DpserveError                 exit 1
├── InputError               exit 2   the request is wrong; nothing was changed
│   ├── AnswerMissing                 what holds permanently was left open
│   ├── SchemaError                   the public schema is wrong or incomplete
│   ├── DataError                     a file does not fit its schema (shown to the steward alone)
│   ├── RecordError                   a record sent for prediction does not fit; names record and field
│   ├── UnknownName                   no dataset, model, job, learner or token of that name
│   │   └── NothingServed             a model's name answers nothing now; says what could
│   ├── NameTaken                     the name is in use
│   ├── WrongState                    a job cannot go from its state to the one asked for
│   │   └── CameBetween               another registration or block came meanwhile: the caller begins again
│   └── IdempotencyConflict           an idempotency key came again with another body
├── NotInvited               exit 2   a report by nobody whom its campaign asked
├── BudgetRefused            exit 3   of `dpserve_verify.errors`: the client and notebooks raise the same
├── Forbidden                exit 3   whoever asks has no grant for it; names scope, object and how it is granted
├── VerificationError        exit 4
│   ├── EntryRefused                  the auditor's rule refuses an entry before it is written
│   └── LedgerInvalid                 tree, checkpoint, entry or state machine
│       └── LedgerReplaced            its file was deleted or replaced while it was open
├── LedgerUnavailable        exit 1   the ledger's database cannot be used for now (locked, full, unreachable)
│   ├── EngineUnavailable             the cluster that DPSERVE_ENGINE names cannot be asked for now
│   └── VersionBehind                 a newer dpserve wrote what this version does not know
├── JobFailed                exit 5   it had started: its budget is spent
│   └── EngineLost                    the cluster that answers for its rows; where its answers are kept it goes on
└── PlanMismatch                      a learner asks for what was not reserved; nothing was drawn
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpserve_verify.errors import DpserveError, InputError, LedgerInvalid, LedgerUnavailable, VerificationError


class AnswerMissing(InputError):
    """What holds permanently was left open, for instance whose the rows are; nothing is assumed, and nothing was
    changed.
    """

    code = "answer_missing"
    remedy = "the message asks the questions, and says how each is answered; ask again with the answers"


class Faults:
    """Collects what is wrong in several words of one request, so that one refusal says all of it."""

    def __init__(self) -> None:
        self._met = list[InputError]()

    def __bool__(self) -> bool:
        return bool(self._met)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Go on behind the block where it raises InputError."""
        try:
            yield
        except InputError as error:
            self._met.append(error)

    def settle(self) -> None:
        """Raise what was met: one fault as it is; of several AnswerMissing where one of them is, else InputError."""
        if len(self._met) == 1:
            raise self._met[0]
        if self._met:
            kind = AnswerMissing if any(isinstance(error, AnswerMissing) for error in self._met) else InputError
            details = {name: value for error in self._met for name, value in error.details.items()}
            raise kind("; ".join(dict.fromkeys(error.message for error in self._met)), **details)


class SchemaError(InputError):
    """The public schema is wrong or incomplete, for instance with a FILL-IN left in a draft."""

    code = "schema_invalid"
    remedy = "mend the schema as the message says; `dpserve schema draft FILE` shows the form"


class DataError(InputError):
    """A file does not fit its schema, for instance a text in a column of numbers. Shown to the steward alone."""

    code = "data_invalid"
    remedy = "mend the file or its schema; `dpserve schema check SCHEMA --data FILE` tells every problem at once"


class RecordError(InputError):
    """A record sent for prediction does not fit the model, for instance without one of its features."""

    code = "record_invalid"
    remedy = "send the record with the fields of the model's schema; null where a value is not known"


class UnknownName(InputError):
    """No dataset, model, job, learner or token has that name."""

    code = "unknown_name"
    remedy = "look it up: `dpserve dataset list`, `model list`, `job list`, `learner list`, `token list`"


class NothingServed(UnknownName):
    """None of the model's versions answers to its name now, for instance because its champion was retired."""

    code = "nothing_served"
    remedy = "promote the version that `details` offers, or name one: NAME@VERSION"


class NameTaken(InputError):
    """The name is in use, or the rows are registered already under another one."""

    code = "name_taken"
    remedy = "take another name; a budget is given once"


class WrongState(InputError):
    """A job, key or version cannot go from its state to the one asked for: a job that has started is not cancelled."""

    code = "wrong_state"
    remedy = "look at what it is now, `details` or `dpserve job show`; what is over is not undone"


class CameBetween(WrongState):
    """Another registration or block came in between, so that what was done is done again by the caller."""


class IdempotencyConflict(InputError):
    """An idempotency key came again with another request."""

    code = "idempotency_conflict"
    remedy = "give another key, or the request as it was"


class NotInvited(DpserveError):
    """An invitation, or an aggregator's token, is not of this campaign."""

    code = "not_invited"
    remedy = "answer the campaign that asked you, once, with the invitation as it came"
    exit_code = 2


class Forbidden(DpserveError):
    """Who asks is known, and has no grant for this. The message names the scope, the object and how it is granted."""

    code = "forbidden"
    remedy = "ask whoever may grant it; the message says the command"
    exit_code = 3


class LedgerReplaced(LedgerInvalid):
    """The ledger's file was deleted, or another put in its place, while it was open: to be opened anew and compared."""


class EntryRefused(VerificationError):
    """An audit would find the entry wrong, for instance as what it was made on ended meanwhile: it was not written."""

    code = "entry_refused"
    remedy = "ask again, as what it was made on may have changed; where it stays, `dpserve ledger audit` says more"


class EngineUnavailable(LedgerUnavailable):
    """The cluster that DPSERVE_ENGINE names does not answer, or its workers have other sources or other files."""

    code = "engine_unavailable"
    remedy = "mend the cluster as the message says; a queued job waits until then, and nothing was spent"


class VersionBehind(LedgerUnavailable):
    """A newer dpserve has written to the ledger: its tables, or a kind of entry, are none that this version knows."""

    code = "version_behind"
    remedy = "run the version that wrote it, or a newer one; this one reads and predicts, and changes nothing any more"


def words_of(error: DpserveError) -> str:
    """Return an error as the `problem` of one line of a list, which keeps no other line from being told."""
    return f"{error.code}: {error.message}"


class RowsUnavailable(LedgerUnavailable):
    """A dataset's folder is not in this home, or not as it was registered; the ledger and all others are as ever."""

    code = "rows_unavailable"
    remedy = "bring the folder back, from a backup or from the disk that has it; `problem` names it in lists"


class JobFailed(DpserveError):
    """The job came to nothing after it had started, for instance as its process was killed: its budget is spent."""

    code = "job_failed"
    remedy = "look into the log of the worker; a new job costs its epsilon again"
    exit_code = 5


class EngineLost(JobFailed):
    """The cluster that a job asks was lost: a job whose answers are kept, or that has none yet, goes on later."""


class PlanMismatch(DpserveError):
    """A learner asks for other releases than were reserved, for instance after an upgrade; nothing was drawn."""

    code = "plan_mismatch"
    remedy = "ask for the job again; where the same comes of it, it is a fault of the learner: report it"
