"""What commands do by asking a server: no rows and no home are here. `serving.cli.here` does the same with a home."""
