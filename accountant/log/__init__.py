"""The transparency log: entries, tree, checkpoints, proofs, tiles, witnesses, and what was last seen of it."""
