"""Plans and their prices: what a job would cost, before it is reserved."""
