"""Edits of additive models: what changes, what does not, and the record of it."""
