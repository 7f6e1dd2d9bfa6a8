"""Campaigns: defined, opened, asked of owners, and closed with a model."""
