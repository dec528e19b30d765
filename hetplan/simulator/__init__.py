"""Queueing simulation of plans: one system, of two kinds of server, played under its demand; one report of all runs.

====================  ====================================================================================
`simulate`            a plan under its demand, once per seed: promised against simulated, line by line
`baselines`           what people run today under the same demand: static peak, cheapest type, autoscaled
`playing`             one run of a system, which keeps both kinds of server at one pace
`simulation`          machines that serve batches, which may change on the way: scaling, new plans, failures
`token_run`           machines that make text token by token, which may change likewise
`run_summary`         what is kept of a run of either kind; `figures` has the statistics
`report`              what several runs say, with intervals; each wish and promise judged
`holding`             queries that hold a share of each tier for their lifetime
`timeline`            the course of a simulation as text and as SVG
`pool*`, `policy*`    loops for the pool's and the policy's own searches
``*_kernels``         what compiles
====================  ====================================================================================

The parts are imported where they are used: this package itself loads nothing.
"""
