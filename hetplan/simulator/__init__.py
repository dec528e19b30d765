"""Queueing simulation of plans: one event engine, and two loops for searches that call it millions of times.

====================  ====================================================================================
`simulate`            a plan under its demand, once per seed: promised against simulated, line by line
`baselines`           what people run today under the same demand: static peak, cheapest type, autoscaled
`simulation`          one run of a system that may change on the way: scaling, new plans, failures
`holding`             queries that hold a share of each tier for their lifetime
`timeline`            the course of a simulation as text and as SVG
`pool*`, `policy*`    loops for the pool's and the policy's own searches
``*_kernels``         what compiles
====================  ====================================================================================

The parts are imported where they are used: this package itself loads nothing.
"""
