"""Bundles on disk: whole or not there, verified before they are loaded."""
