"""Learners that add up votes: LazyBB, its trees, and BDPE."""
