r"""Machines of several applications over time: what to commit, what to rent in which period, where, for whom.

It joins other questions as parts (`planner/fleet_part.py`), over periods, zones, failures and ways to buy, and writes
none of their mathematics again.

==============  ==============================  =======================================================================
letter          in the code                     meaning
==============  ==============================  =======================================================================
a               `FleetRequest.apps`             application, with its question
o               `FleetRequest.offers`           offer: a hardware in a zone, on demand or spot
p, l            `FleetRequest.hours`            period, and its length in hours; L = all of them
f, d_f          `FleetRequest.situations`       situation (nothing failed; zones, machines or spot gone), share kept
lam_ap          `Application.rates`             rate of an application in a period
R_o, N_op       `Fleet.committed`, `.rented`    machines paid for ahead, machines rented in a period
x_aop           `Choice.machines`               whole machines that a uses in p; of those that share, whole slices
==============  ==============================  =======================================================================

::

    min  L sum_o cR_o R_o + sum_p l sum_o c_o N_op + sum_po c_o start_o (N_op - N_o,p-1)+
    (1)  sum_a x_aop <= R_o + N_op                              every offer and period
    (2)  what is left in f of x_a.p carries d_f lam_ap          every application, period and situation, by a's question
    (3)  stock, quotas of zones, budget, resources, instances, limits per offer, of R_o + N_op
    (4)  sum (x_aop - x_ao,p-1)+ <= limits.changes                every period; the first follows the last

With a state that has s_o machines, r_ao of them of a, the first period follows the last all times but one: of the
`repeats` times that it comes, once ``sum_o c_o start_o (R_o + N_o0 - s_o)+`` is paid, and ``sum (x_ao0 - r_ao)+`` is at
most `limits.changes`.

A machine serves one application, and keeps it when others fail. Where all instances of an application take the same
part of a machine, it may be shared, with applications of other questions too: x_aop then counts slices, of which a
machine is `FleetRequest.each`. Applications of `variants`, or of pipelines, whose instances take unlike parts, or of
which machines may fail, may share some afterwards. Who might share a machine, and is planned in neither way, counts as
free in the bound (`sharing.who_may_share`).

The files, in the order in which they are used: `question` (the door), `request` (reading, and who plans what),
`candidate_columns` (the rows of an application, and its cheapest machines), `zones` (these found quicker, where zones
are alike), `program` (the one program of all periods: a small fleet is that, one period alone, and hours of a large
one), `search` (prices, columns and the bound of large fleets), `rounding` (their whole machines), `formulations` (the
conversation), `first_fleet` (a plan, soon), `sizing` (for queries that wait), `sharing` (machines that are shared),
`after_failure` (what machines hold, so that nothing loads for long), `draft` (the plan and its bill), `bounds` (what no
fleet costs less than), `savings` (what each way to buy saves), `infeasible` (no plan, and what would give one). Other
objectives of one period than the cost: `max_objectives`.
"""
