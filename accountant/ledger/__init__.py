"""The ledger: datasets, families, jobs and tokens; what is admitted, charged, changed and found again."""
