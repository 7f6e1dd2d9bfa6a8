"""Canonical JSON and Merkle trees: the forms of what is hashed and signed."""
