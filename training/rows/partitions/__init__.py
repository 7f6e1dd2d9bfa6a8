"""Rows as a sum of partitions: what is asked of each, and who asks."""
