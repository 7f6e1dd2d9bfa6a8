"""What privacy costs: events, prices, claims, and the filter that admits or refuses."""
