"""What releases cost, from the definitions."""
