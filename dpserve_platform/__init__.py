"""Learners of others that run in a home (docs/reference/others.md), and the check that records and plays a learner."""
