"""An institution's own side: a home with its rows, what it agrees to, and the program that answers."""
