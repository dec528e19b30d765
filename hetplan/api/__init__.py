"""The way in: what `import hetplan` offers and the commands call, from files to plans that were checked.

`solve` plans · `which_question` says what files ask for · `planner` keeps a profile read, for loops · `judge` verifies
and simulates plans · `simulated_promises` plays again what they promise · `recipes` plans for other rates · `watching`
follows the demand · `paid_ahead` plans a moment beside a schedule.
"""

from __future__ import annotations

__all__: list[str] = []
