"""Pipelines (Loki, HPDC 2024): which variants of every step to host, on how many servers, and how queries go through.

While the demand fits at the best accuracy, the servers are as few (or as cheap) as can be; beyond, the accuracy is as
high as the cluster can carry. Routing tables and backups come with the plan.

The letters are in `letters`, the mathematics of each program in `form`. To read on, in the order of a solve: `question`
(which files ask it), `wish` and `fleet` (reading the files), `tree` (steps and paths), `letters` (the question), `ways`
(which formulation), `exact` (exact programs), `climb` (one goal after the other), `form` and `rows` (programs),
`infeasible` (there is no plan), `draft` (the plan), `bursts` (what bounds plans in bursts). Only when needed: `levels`
(large clusters), `crowded` and `apart` (few servers),
`joins` (branches that meet again), `routing` (other routings), `size` (sizing by simulation), `reroute` (the same
servers, routed anew), `baselines`.
"""
