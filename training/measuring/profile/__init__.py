"""Profiles of datasets, measured privately: one release of a noisy count in every public bin, one signed statement."""
