"""What commands do with a home on this machine, by topic."""
