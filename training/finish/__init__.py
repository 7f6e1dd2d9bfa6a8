"""The end of a job: a signed release, a derived model, and the lease that a process holds."""
