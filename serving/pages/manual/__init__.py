"""The documentation, which the server itself shows, and the description of its doors."""
