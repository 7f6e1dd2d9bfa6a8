"""Keys: private ones on disk or elsewhere, envelopes they sign, and the trust file of those that count."""
