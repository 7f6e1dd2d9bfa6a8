"""Datasets that grow: blocks of rows are appended and deleted, and jobs are asked for again by a rule."""
