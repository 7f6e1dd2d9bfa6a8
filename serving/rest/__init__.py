"""The REST doors and their description."""
