"""What Alembic runs: every migration within the connection and the transaction that it is handed."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
