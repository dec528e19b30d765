"""What people ask beside one plan: what if, how sure, why these machines, which of two plans, what else serves as well.

Each study solves the same question many times, for files with small changes (`axes`), one after another or side by side
(`Spread`): `whatif` along ranges, `robust` for errors of what was measured and forecast, `explain` around one plan.
`comparison` sets plan files beside one another and solves nothing.

`strategies` simulates other ways to serve the demand of a plan (for plans with periods and for LLMs:
`fleet_strategies`, `llm_strategies`, `llm_baselines`), `replanning` plans that follow one another.
"""

from __future__ import annotations

__all__: list[str] = []
