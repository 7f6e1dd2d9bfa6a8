"""Settings, and what a server needs before it starts."""
