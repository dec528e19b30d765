"""Every tolerance by which a verdict is taken, each with its reason: nothing else compares with a number of its own."""

from __future__ import annotations

__all__ = [
    "BOUND_SLIP",
    "FEASIBILITY",
    "GAP",
    "INTEGRALITY",
    "LARGEST_GAP",
    "NO_GAP",
    "OPTIMAL_GAP",
    "PROOF_NUMBERS",
    "PROOF_ROWS",
    "ROUNDING",
    "SLIP",
    "TEXT_HEADROOM",
    "VALUE",
]

FEASIBILITY = 1e-6
"""How far a row or bound may be broken, relative to its own scale (the largest term of the row, at least 1).

Engines stop at 1e-7 absolute after their own scaling; ten times that, measured row by row, is slack enough for all of
them and still six digits below any demand a person states."""

INTEGRALITY = 1e-5
"""How far from a whole number an integer column may be. HiGHS and SCIP accept 1e-6 before unscaling; problems round
and solve the continuous part again, so a verdict never rests on this."""

VALUE = 1e-6
"""How far a stated objective may lie from the recomputed one, relative to the larger of the two and 1."""

BOUND_SLIP = 1e-6
"""How far a bound may be on the wrong side of a value before it is called false (relative, as VALUE)."""

GAP = 1e-4
"""The default gap of exact formulations; a formulation may state its own."""

OPTIMAL_GAP = 1e-6
"""At or below this gap a plan is called optimal rather than within a gap: it is what VALUE can distinguish."""

LARGEST_GAP = 0.05
"""A plan with more than this between value and bound is called feasible, whatever gap was allowed."""

ROUNDING = 1e-12
"""What a gap of nothing may come to in floating point."""

NO_GAP = 1e-9
"""What a gap of 0 that is asked for may come to: bounds are proved with rounding on the safe side."""

SLIP = 1e-9
"""How far sums and quotients of what files state may be off in floating point: a limit that is just reached is kept."""

PROOF_NUMBERS = 16_000
"""Trees of proofs with more numbers than this (some 256 KiB) stay out of the plan file (the solve says so)."""

PROOF_ROWS = 500
"""Proof vectors with more nonzeros than this stay out of the plan file (the solve says so): people read plans."""

TEXT_HEADROOM = 0.2
"""Capacity of machines of an LLM above the rate, as a share of it, where nothing is simulated."""
