"""One file for every revision, in order. What stands in them is never changed: databases were made by it."""
