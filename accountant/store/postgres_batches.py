"""PostgreSQL connection that sends several statements as one message, so that a distant server costs one round trip.

What is written is sent with the next question, or with the commit; what is known to be asked can be asked ahead, and is
answered from memory when it is. Statements go as texts, with their values as literals that the driver quotes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import ClientCursor, Error
from psycopg.pq import TransactionStatus

from accountant.store.postgres_timeout import TimeoutConnection
from accountant.store.queries import AHEAD, LATER

COMMIT = "COMMIT"


@dataclass(frozen=True)
class Answer:
    """What came of one statement: the columns, None where it gives no rows, the rows, and how many it changed."""

    description: Any
    rows: Sequence[Any]
    count: int


class BatchConnection(TimeoutConnection):
    """Connection whose plain cursors take part in batches.

    Attributes:
        waiting: statements that are sent before the next one, or with the commit.
        ahead: questions that are sent with it, and whose answers are remembered.
        memory: answers, by the text of the question: those that were asked ahead, until something is written.
        writes: whether the transaction is a writing one: in another, nothing is written later either.
        remembers: whether all that is asked is remembered: in a reading transaction of `Store.remembering`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting: list[str] = []
        self.ahead: list[str] = []
        self.memory: dict[str, Answer] = {}
        self.remembers = self.writes = False

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """Return a cursor that takes part in batches, or the driver's own where options are given."""
        if not (arguments or options):
            return BatchCursor(self)
        if self.waiting or self.ahead:
            self._send()
        return super().cursor(*arguments, **options)

    def text(self, statement: str, values: Any) -> str:
        """Return a statement with its values in place."""
        return statement if values is None else ClientCursor(self).mogrify(statement, values)

    def ask(self, text: str) -> Answer:
        """Return the answer to a statement, which is sent with all that waits before it."""
        if text in self.memory:
            return self.memory[text]
        reads = text.startswith("SELECT")
        if not (reads or self.remembers):
            self.memory = {}
        answer = self._send(text)
        if reads and self.remembers:
            self.memory[text] = answer
        return answer

    def _send(self, *text: str) -> Answer:
        """Send all that waits, `text`, and what is asked ahead, which stands before a commit; return the answer to
        `text`.
        """
        before, ahead = self.waiting, self.ahead
        self.waiting, self.ahead = [], []
        texts = [*before, *ahead, *text] if text == (COMMIT,) else [*before, *text, *ahead]
        with super().cursor() as cursor:
            cursor.execute("; ".join(texts))
            answers, more = [], True
            while more:
                rows = cursor.fetchall() if cursor.description else ()
                answers.append(Answer(cursor.description, rows, cursor.rowcount))
                more = bool(cursor.nextset())
        if not ahead:  # one text may hold several statements: of a migration
            return answers[-1]
        by_text = dict(zip(texts, answers, strict=True))
        self.memory |= {each: by_text[each] for each in ahead}
        return by_text[text[0]] if text else answers[-1]

    def commit(self) -> None:
        """Commit, in one message with what waits."""
        try:
            if self.waiting and self.pgconn.transaction_status == TransactionStatus.INTRANS:
                self._send(COMMIT)
        except Error:  # of a statement that waited: to SQLAlchemy the transaction is over
            if not self.closed:
                self.rollback()
            raise
        self.forget()
        super().commit()

    def rollback(self) -> None:
        """Cancel the transaction (ROLLBACK); what waits is not sent."""
        self.forget()
        super().rollback()

    def forget(self) -> None:
        """Drop what was to be sent, and what was remembered of this transaction."""
        self.waiting, self.ahead, self.memory, self.remembers, self.writes = [], [], {}, False, False


class BatchCursor:
    """The part of a cursor that SQLAlchemy uses."""

    arraysize = 1

    def __init__(self, connection: BatchConnection) -> None:
        self.connection = connection
        self._answer, self._at = Answer(None, (), -1), 0

    @property
    def description(self) -> Any:
        """Describe the columns; None where the statement gives no rows."""
        return self._answer.description

    @property
    def rowcount(self) -> int:
        """Count the rows that the statement gave or changed; -1 where that is not known yet."""
        return self._answer.count

    def execute(self, statement: str, values: Any = None, **_: Any) -> BatchCursor:
        """Run a statement."""
        self._answer, self._at = self.connection.ask(self.connection.text(statement, values)), 0
        return self

    def executemany(self, statement: str, several: Sequence[Any]) -> None:
        """Run a statement with each of these values, in one message."""
        self.connection.waiting += [self.connection.text(statement, values) for values in several[:-1]]
        self.execute(statement, several[-1])

    def fetchone(self) -> Any:
        """Return the next row; None at the end."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int = arraysize) -> Sequence[Any]:
        """Return the next rows."""
        rows = self._answer.rows[self._at : self._at + size]
        self._at += len(rows)
        return rows

    def fetchall(self) -> Sequence[Any]:
        """Return the remaining rows."""
        return self.fetchmany(len(self._answer.rows))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def close(self) -> None:
        """Do nothing: all was fetched."""


def postpone(cursor: Any, statement: str, values: Any, context: Any) -> bool:
    """Take a statement that may wait, or that is asked ahead, before SQLAlchemy has it run; return whether it was."""
    options, connection = context.execution_options, cursor.connection
    later, ahead = connection.writes and LATER.keys() <= options.keys(), AHEAD.keys() <= options.keys()
    if not (later or ahead):
        return False
    texts = [connection.text(statement, each) for each in (values if context.executemany else [values])]
    if ahead:
        connection.ahead += [text for text in texts if text not in connection.memory and text not in connection.ahead]
    else:
        connection.waiting += texts
        connection.memory = {}
    return True
