"""The heterogeneous pool (Kairos, HPDC 2023): how many instances of which type to rent for one model.

Decided is how many instances run under which offer, which share of every class of queries goes to which type, and the
rule by which queries are sent. With a budget the rate is as high as it can be; with a rate, the cost as low.

The letters and the mathematics are in `letters`. To read on, in the order of a solve:

`fits`, `question`   which files ask for a pool; its formulations
`reading`            the files, and what they may not say
`formulations`       the conversation with engines
`program`            what a pool takes of machines (`planner.program` rents them)
`rates`              what given counts carry
`sizing`             the default: plans that meet the SLO in simulation
`infeasible`         there is no pool
`draft`, `chosen`    the plan
`bursts`             what bursts of queries ask of all pools, whoever dispatches
`bounding`           the programs that prove its bounds again
`part`               a pool within a fleet

Only when named: `size` (rates found by Kairos' simulation), `listing` and `search` (trying many pools), `eq15` (the
paper's estimate).
"""
