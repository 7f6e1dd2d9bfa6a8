"""Commands of campaigns among owners, and of an owner."""
