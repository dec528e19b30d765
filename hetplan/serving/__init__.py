"""What a load is: read once, here, for every room but the verifier (which has a separate reader with the same rules).

==============================  =======================================================================================
question                        module
==============================  =======================================================================================
which run? where on its tables? `runs`: a run is (variant, hardware, at); a load names it (`loads`), once for all
how long?                       `law`: one service law, plain data. `times` makes it of a table, `loads` of a run or of
                                a load of a plan
where on a table?               `table_points`: one order of precedence
which statistic?                `table_points`: the one that answers where the wanted one was not measured
how much?                       `price`: prices by the unit and of runs; `runs`: of a whole one. `loads`: of a worker
how much of a machine?          `needs`: what a load takes, and what a machine runs at once
by when?                        `demand`: percentile -> limit, less the network's hops on the path
how many?                       `demand`: classes of queries and their shares, rates
how many at once?               `window`: of the queries that come in a window, what no machines can answer in time
what runs?                      `system`: groups of workers, loads with their law, stages, routes, links;
                                `planned_system` makes it from a plan (`routes`, `operators`, `service` are its parts)
what follows what, and where?   `steps`: stages, edges, outcomes; `route_choice`: which one holds; the router's too
==============================  =======================================================================================

Questions that read a wish are handed all this by `planner.request`: applications with their targets and classes, and
each run as a choice, with its law, price and machine.

`law` and `table_points` load neither NumPy nor pydantic: a worker's process reads the same law as the simulator.
"""
