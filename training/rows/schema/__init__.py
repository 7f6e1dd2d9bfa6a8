"""The public schema of a dataset, and how its cells are written."""
