"""Commands that check a learner, admit one of others, and end its admission."""
