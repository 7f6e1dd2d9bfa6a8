"""PostgreSQL connection with a statement timeout, which also ends waits for a silent network or proxy."""

from __future__ import annotations

from time import monotonic
from typing import Any

from psycopg import Connection, OperationalError

ANSWER_SECONDS = 40.0  # of one statement: longer than another writer may be waited for
# For libpq: seconds until a connection is given up that is not greeted, and one on which nothing comes or is taken.
REACHED = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # milliseconds
}


class TimeoutConnection(Connection[Any]):
    """Connection that closes itself when a statement is not answered in time; whether the statement ran is then
    unknown.
    """

    no_timeout = False  # for what takes as long as it takes

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait as the driver does. Close the connection and raise OperationalError after ANSWER_SECONDS."""
        if timeout is not None or self.no_timeout:
            return super().wait(gen, interval, timeout)
        end = monotonic() + ANSWER_SECONDS
        try:
            return super().wait(gen, interval, ANSWER_SECONDS)
        except OperationalError:
            if monotonic() < end:  # the server's own
                raise
            self.pgconn.finish()
            raise OperationalError(f"no answer within {ANSWER_SECONDS:g} seconds: the connection is given up") from None
