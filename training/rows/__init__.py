"""Rows: schemas, files into packed bins, and the integer questions that learners ask of them."""
