"""The engines: one file each or one per family, every heavy import inside the call that needs it.

::

    engine.py           what all engines share: refuse or answer, form by form; hear a cancel in a thread
    milp_engine.py      what engines for Milp forms share; an engine writes `_run`; trees that prove bounds
      milp_proofs.py      answers without a best point, and their proofs; forms without rows or columns
      linear.py           linear programs asked of HiGHS beside the engine
    integer_programs.py a Milp exactly in whole numbers, or a mixed one on a grid of them

    highs.py            "highs"            the default: duals, rays, warm families
    mathopt.py          "mathopt-scip"     an independent branch and bound
                        "glop"             an independent simplex method, linear programs only
    cp_sat.py           "cp-sat"           pure integer programs; where named, others by the next
                        "cp-sat-scaled"    mixed ones on a grid; by name only
    pyomo_bridge.py     "pyomo", "pyomo:<engine>"    whatever else a site has

    columns.py          "columns"          Dantzig-Wolfe; columns_tree.py ends its search with a proof
    priced_columns.py   "priced-columns"   mixtures by column generation
    packing.py          "greedy", "fcfs"   machines being filled, greedy orders, prices
      packing_local.py    a choice improved step by step
    packing_exact.py    "dual", "dual-core", "exact"    with a bound
    catalog.py          "bound-order", "exhaustive"
    search.py           "struct-ci", "cmbo", ...    compound plans; botorch_process.py the same by BoTorch
      search_beliefs.py   what a search believes of what it has not measured
    gaussian_process.py Gaussian processes of the searches above
    policy_iteration.py decision processes, for whatever offers sweeps
    queue_structured*.py    "queue-structured"    queues, without a matrix
"""
