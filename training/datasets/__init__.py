"""Registered datasets: registration, copies, growth, and the files that hold their rows."""
