"""What commands do where the home is on this machine. `serving.cli.backends.server` asks a server for the same."""
