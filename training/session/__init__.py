"""The session: the only door between a learner and rows."""
