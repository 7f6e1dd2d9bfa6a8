"""The doors: REST (BentoML) and the command line, over the same functions."""
