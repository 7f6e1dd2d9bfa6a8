"""Verify what dpserve certifies: bundles, certificates, checkpoints and exported ledgers."""
