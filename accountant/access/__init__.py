"""Who may do what: tokens, grants and the life of keys, as entries of the log."""
