"""Rules that `variants` is compared with, each a formulation of its own name; loaded only when it is asked for."""
