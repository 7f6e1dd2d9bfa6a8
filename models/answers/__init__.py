"""What one query of counts, sums and means asks, and what follows from what was released: sees no row."""
