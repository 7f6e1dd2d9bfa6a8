"""Files, and text that is fit for a terminal."""
