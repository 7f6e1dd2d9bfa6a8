"""What a certified model is worth, measured privately on rows: one release, one signed statement."""
