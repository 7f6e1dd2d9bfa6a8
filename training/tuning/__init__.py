"""Private tuning: several settings as one job at one price."""
