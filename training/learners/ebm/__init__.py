"""DP-EBM: one curve per feature."""
