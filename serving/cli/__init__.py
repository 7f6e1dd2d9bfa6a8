"""The `dpserve` command."""
