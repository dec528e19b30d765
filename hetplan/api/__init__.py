"""The way in: what `import hetplan` offers and the commands call, from files to plans that were checked.

`solve` plans · `infer_problem` says what files ask for · `planner` keeps a profile read, for loops ·
`verify_and_simulate` checks plans · `simulated_promises` simulates again what they promise · `plans_by_rate` plans for
other rates · `autoscaler` follows the demand · `commitments` plans a moment with machines that are reserved.
"""

from __future__ import annotations

__all__: list[str] = []
