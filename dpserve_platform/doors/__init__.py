"""The doors of learners of others over REST, and their pages."""
