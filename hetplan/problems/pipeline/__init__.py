"""The question `pipeline`: its class stands in `question.py`, its letters and mathematics with it."""
