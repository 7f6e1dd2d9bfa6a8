"""What every private learner shares."""
