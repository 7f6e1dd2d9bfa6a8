"""People: which rows are of one person, and fingerprints of both."""
