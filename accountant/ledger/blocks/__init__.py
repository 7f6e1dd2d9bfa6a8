"""Datasets that grow: blocks of rows, each with an account of its own, and the windows of blocks that jobs read."""
