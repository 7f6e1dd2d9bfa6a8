"""What a campaign defines, what an owner reports, and what is learnt from the reports."""
