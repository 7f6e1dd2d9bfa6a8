"""Learners of others that run in a home (docs/platform.md), and the check that records a learner and plays it."""
