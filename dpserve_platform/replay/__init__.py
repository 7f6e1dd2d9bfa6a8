"""Record and play: a learner is played on neighbours with the answers of its first run, and must ask the same."""
