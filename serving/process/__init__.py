"""What runs: settings, start and stop, logs, metrics, limits, audits."""
