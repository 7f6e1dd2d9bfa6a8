"""Queries of counts, sums and means, answered privately: one release, one signed statement."""
