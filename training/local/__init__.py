"""Owners who trust nobody: what a campaign defines, what an owner computes, and what is learnt from the reports."""
