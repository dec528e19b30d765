"""Independent arithmetic on plans: recomputes what a plan promises from its inputs, by code of its own."""
