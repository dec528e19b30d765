"""Rules that `variants` is compared with, each a formulation that is loaded only when it is named."""
