"""Forms, answers, certificates, plans, and the loop that joins problems to solvers.

`forms/` what can be asked · `answer` what comes back · `certify`, `safe_bound` what of it is re-proved · `solver_calls`
asks solvers · `draft` what a problem hands back · `make_plan` the plan with its proof · `status` what that amounts to ·
`elastic` why nothing fits and what would · `contract` the two protocols to implement. The plan file itself is in
`hetplan.profiles.plan`.
"""
