"""What happens to one query, now: pure decisions. State in, decision out; no clock, no input or output.

The simulator tries these decisions, a router acts on them, other schedulers embed them: what was simulated is what
runs. `hetplan.dispatch.rules` is the closed registry of rules that a plan may name; `decide` asks one of them::

    from hetplan.dispatch.rules import decide
    from hetplan.dispatch.snapshot import Snapshot
"""
