"""How the rows of a dataset are spread over public bins: figures of noisy counts, pictures, and what they propose."""
