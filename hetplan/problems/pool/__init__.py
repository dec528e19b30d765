"""The heterogeneous pool (Kairos, HPDC 2023): how many instances of which type to rent for one model.

Decided is how many instances run under which offer, which share of every class of queries goes to which type, and the
rule by which queries are sent. With a budget the rate is as high as it can be; with a rate, the cost as low.

`question`     which files ask for a pool; its formulations; what proves a bound again
`options`      what may be set
`request`      the files, and what they may not say
`program`      the pool in the letters of its paper, and the programs of it (`planner.program` rents machines)
`capacity`     what given counts carry: by the program, by flows without an engine, in simulation
`sizing`       plans that meet the SLO in simulation, the default; or by a formula
`kairos`       the paper's formulations: Eq. 15, and the search Kairos+
`infeasible`   why there is no pool, and what would give one
`plan`         workers, routes, dispatch, promises
`part`         a pool within a fleet
"""
