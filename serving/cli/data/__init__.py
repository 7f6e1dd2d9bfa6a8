"""Commands on data before a model is made: profiles, and schemas."""
