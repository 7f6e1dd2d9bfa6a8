"""The sums that learners ask of rows."""
