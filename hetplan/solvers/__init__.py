"""The engines: one file each, every heavy import inside the call that needs it.

::

    milp_engine.py      what all engines for Milp forms share; an engine writes `_run`
      milp_points.py      points: feasible, better, on integers
      milp_proofs.py      rays that an engine does not give; forms that need no engine
      in_background.py    engines that do not listen to Python while they work
      integer_program.py  a Milp exactly in whole numbers
      integer_grid.py     a mixed one on a grid of whole numbers

    highs.py            "highs"            the default: duals, rays, warm families
    scipy_milp.py       "scipy"            a second build of HiGHS
    mathopt.py          "mathopt-scip"     an independent branch and bound
                        "mathopt-highs"    a third build of HiGHS
                        "glop", "mathopt-pdlp"    linear programs only
    cp_sat.py           "cp-sat"           pure integer programs only
                        "cp-sat-scaled"    mixed ones on a grid; by name only
    pyomo_bridge.py     "pyomo", "pyomo:<engine>"    whatever else a site has
"""
