"""Rows as integers: fine cells, and the bins that are merged from them."""
