"""The audit: every entry of a ledger replayed by an independent reader."""
