"""Owners and institutions that keep their rows: campaigns, owners, aggregators, and federations."""
