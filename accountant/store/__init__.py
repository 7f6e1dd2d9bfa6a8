"""The database under the ledger: its tables, transactions, migrations and two engines."""
