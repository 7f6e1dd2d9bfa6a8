"""What runs: settings, start and stop, what a worker knows, logs, metrics, limits, audits."""
