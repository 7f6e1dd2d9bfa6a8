"""From a file to a registered dataset, step by step: what a terminal and a browser ask, and what their answers make."""
