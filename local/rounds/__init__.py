"""Campaigns of institutions: sum after sum over the rows that each of them keeps, shared to two aggregators."""
