"""The doors of campaigns over REST, and their page."""
