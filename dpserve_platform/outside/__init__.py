"""Learners of others: one file, run in a sealed process without rows, whose requests cross a pipe as strict JSON."""
