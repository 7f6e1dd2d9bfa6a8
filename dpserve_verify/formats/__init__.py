"""How things are spelled: canonical JSON, hash trees, and forms of objects."""
