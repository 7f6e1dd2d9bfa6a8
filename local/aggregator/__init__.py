"""An aggregator's side: keys, policy, shares and a ledger of its own; one noisy sum of each campaign, never two."""
