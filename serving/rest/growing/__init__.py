"""Doors of datasets that grow."""
