"""Certificates: their form, their sentences, and whether they hold."""
