"""What a model says of itself: contributions, pictures, pages, cards, comparisons."""
