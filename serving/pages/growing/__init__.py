"""What pages show of datasets that grow."""
