"""The kinds of jobs: what the runner does for each, one class in one file."""
