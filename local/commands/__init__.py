"""Commands of campaigns among owners, and of owners, aggregators and institutions."""
