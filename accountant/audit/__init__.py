"""The audit: every entry, signature, price once more, by formulas of its own, believing the pinned keys alone."""
