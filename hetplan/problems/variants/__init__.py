"""The question `variants`: its class stands in `question.py`, its letters and mathematics with it."""
