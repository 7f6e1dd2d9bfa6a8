"""Families of datasets: people who share accounts, their blocks of rows, and what is left of each account."""
