"""Pipelines (Loki, HPDC 2024): which variants of every step to host, on how many servers, and how queries go through.

While the demand fits at the best accuracy, the servers are as few (or as cheap) as can be; beyond, the accuracy is as
high as the cluster can carry. Routing tables and backups come with the plan.

In the order of a solve: `question` (which files ask it), `request` (reading files and options), `tree` (steps,
configurations, paths), `pipelines` (the letters), `sizing` (the plan at the size asked for), `scaling` (one goal after
the other) over `programs` (mathematics), `latency_levels` and `small_cluster` (large clusters, and few servers),
`infeasible` (there is no plan), `draft` (the plan), `bounds` (what no plan is better than).
"""
