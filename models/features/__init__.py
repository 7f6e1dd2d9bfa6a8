"""Features and their encoding: how a raw value becomes a small integer code."""
