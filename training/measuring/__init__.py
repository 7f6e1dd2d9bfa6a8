"""What a dataset or a certified model is worth, measured privately: one release, one signed statement."""
