"""Entries of the ledger: a file a subject, with the form of each kind of entry."""
