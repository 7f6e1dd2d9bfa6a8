"""Jobs: queued, run, resumed after a crash, and asked for again by a schedule."""
