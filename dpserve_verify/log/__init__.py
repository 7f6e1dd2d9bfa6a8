"""The ledger as a transparency log: entries, checkpoints, proofs, witnesses."""
