"""The owner's side: a policy, rows and a ledger of the owner's own; one report of each campaign, never two."""
