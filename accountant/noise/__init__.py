"""Mechanisms, exact samplers and shares: the only place where randomness is drawn."""
