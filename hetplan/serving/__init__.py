"""What a load is: read once, here, for every room but the verifier (which has a separate reader with the same rules).

==============================  =======================================================================================
question                        module
==============================  =======================================================================================
which run? where on its tables? `runs`: a run is (variant, hardware, at); a load names it (`loads`), once for all
how long?                       `law`: one service law, plain data. `times` makes it of a table, `loads` of a run or of
                                a load of a plan
where on a table?               `reading`: one order of precedence
which statistic?                `reading.answering`: the one that answers where the wanted one was not measured
how much?                       `price`: prices by the unit and of runs; `runs`: of a whole one. `loads`: of a worker
how much of a machine?          `needs`: what a load takes, and what a machine runs at once
by when?                        `demand`: percentile -> limit, less the network's hops on the path
how many?                       `demand`: classes of queries and their shares, rates
how many at once?               `window`: of the queries that come in a window, what no machines can answer in time
what runs?                      `system`: groups of workers, loads with their law, stages, routes, links;
                                `planned_system` makes it from a plan (`routes`, `operators`, `service` are its parts)
what follows what, and where?   `steps`: stages, edges, outcomes; `choice`: which route holds. The router's table too
==============================  =======================================================================================

In short, for a question that reads a wish::

    run = runs_on(profile, "m", "gpu")[0]              # runs.py; every run is a choice of its own
    law = law_of_run(profile, "m", run)                # loads.py; runs that differ by batch alone are one table
    law.ms({"tokens": 512}, size=8)                    # law.py; milliseconds of a batch of eight such queries
    price = price_of(profile, run, "gpu-od")           # price.py; whole 1e-9 per hour, and the slice that is paid
    limits = response_targets(app)                     # demand.py; limits[-1].limit_ms(steps=2)
    classes = classes_of(app.demand.mix).coming()      # demand.py; classes.points, classes.shares
    Load(id="w1.a", variant="m", at=at_of(run), ...)   # what the plan says of it

`law` and `reading` load neither NumPy nor pydantic: a worker's process reads the same law as the simulator.
"""
