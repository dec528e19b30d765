r"""Which model answers which batch, by queue length and slack, before any query comes (RAMSIS, EuroSys 2024).

Given: workers, the models that they hold, an application with a load and a limit on its response time. Decided: a
table per load. With n queries waiting, the oldest of which has slack T_j left, run model m on b of them.

==========  ===========================  ==============================================================================
letter      field                        meaning
==========  ===========================  ==============================================================================
K           `Group.workers`              workers behind one load balancer
N           `options.queue_max`          longest queue that is distinguished
T_j         `slack_grid`                 slacks that are distinguished (option `grid`)
l(m, b)     `Models.latency_s`           seconds at the table's percentile, repaired for b = 1..N + 1
acc_m       `Models.accuracy`            accuracy, a fraction
SLO         `AppWish.slo_s`              response target less the network
Phi, nu     `Group.arrivals`             own inter-arrival times: Erlang of Phi stages of rate nu
==========  ===========================  ==============================================================================

The process, its rewards and its transitions are at `planner/forms/queue_process.py`. `policy-mdp` (the default)
maximises accuracy per query that comes; `paper` maximises it per decision, as published. Goodput is accuracy x (1 -
violation). What is expected of a policy is an average of the model of the queue: slack is rounded down, and a batch
whose oldest query is late counts as late. Goodput was never above simulation in any case measured; that is no bound.

`question`       which files ask for a policy; its formulations
`options`        what may be set
`request`        the files: applications with their arrivals, workers, models
`group`          groups of workers and their decision process; policies found for it
`policy_search`  solves processes, and simulates policies
`formulations`   load or workers divided, a policy per load, the fewest workers, rules of other packages
`infeasible`     why no policy meets the SLO, and what would keep it
`plan`           the plan, what it claims, and the process that proves a claim again
"""
