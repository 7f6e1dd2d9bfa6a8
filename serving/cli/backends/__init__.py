"""What commands ask: a home of this machine, or a server. `abstract.Backend` says what either can do."""
