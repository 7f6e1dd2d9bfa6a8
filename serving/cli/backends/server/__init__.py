"""What commands do by asking a server: no rows and no home are here. `serving.cli.backends.home` has both."""
