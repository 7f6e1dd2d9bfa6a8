"""What Alembic runs: every migration within the connection and the transaction that it is handed."""

from __future__ import annotations

from alembic import context

from accountant.store.tables import META

context.configure(connection=context.config.attributes["connection"], target_metadata=META)
with context.begin_transaction():
    context.run_migrations()
