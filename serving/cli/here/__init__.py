"""What commands do where the home is on this machine. `serving.cli.remote` does the same by asking a server."""
