"""What a model's certificate states, how it is signed and verified, and how it reads in plain words."""
