"""Pages on which somebody does something in steps: registers a file, has one predicted, edits a model."""
