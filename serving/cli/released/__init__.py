"""Commands on one released model: show, export, explain, edit. Each opens it, which verifies it."""
