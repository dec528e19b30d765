"""Rules that RAMSIS is compared with."""
