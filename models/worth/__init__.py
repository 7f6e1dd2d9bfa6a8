"""What a model is worth, from one noisy histogram: post-processing of released numbers, which sees no row."""
