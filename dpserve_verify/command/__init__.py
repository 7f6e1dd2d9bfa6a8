"""The command `dpserve-verify`."""
