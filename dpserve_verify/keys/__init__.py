"""Pinned keys, and what they signed."""
