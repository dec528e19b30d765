r"""Compound queries over tiers: find plans per query with few measurements, then choose one per query (Circinus, 2025).

Given: tiers (a device, an edge, a cloud) with their machines; queries, each a pipeline of operators with knobs, and
wanted accuracy and latency. Decided: for every query its knobs, the tier of each operator and its share of a GPU.

==========  ====================  ====================================================================================
letter      here                  meaning
==========  ====================  ====================================================================================
i, j        `queries`, `ways`     query (application), plan of it: knobs, a tier and a GPU share per operator
w_i         `Way.weight`          what serving the query is worth
d_ijr       `Way.demand`          what a plan takes of resource r in total; `Way.items`: of single machines
C_r         `totals`              how much there is of it
T_m, L_m    `Tier`                what a GPU of tier m holds, and how many there are; G_m its price
A, L        SLO of the app        least accuracy, most latency (a median unless measured otherwise)
==========  ====================  ====================================================================================

First stage, per query (`search`): propose a plan, measure its accuracy until a test says on which side of A
it is, learn, propose again; every compliant plan is then cut down to the least GPU shares that keep L. Second stage:
the `Packing` form over all queries: most weight served (goodput), then least cost; or all of them at least cost.
Formulation ``paper`` has the paper's rules as its defaults.

The files, in the order in which they are used: `question` (the door), `options`, `request` (tiers, objective, stated
candidates), `pipeline_query` (a query whose plans are searched for, and the form of it), `two_stage` (search, then
pack; fronts), `search` (the first stage), `candidates` (of what was measured, alone or with shared replicas),
`stations` (replicas for a rate), `packing` (the second stage, and what is missing), `plan` (its sections), `sizing`
(plans for a rate are simulated).
"""
