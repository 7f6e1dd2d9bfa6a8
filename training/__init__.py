"""Rows come in here and nowhere else: schema, data, sessions, learners, engines, jobs."""
