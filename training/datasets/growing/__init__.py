"""Datasets that grow: blocks of rows are appended and deleted."""
