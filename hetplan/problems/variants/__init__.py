r"""Which variants of which models run, where and how many of each, at least cost (INFaaS, ATC 2021).

Given: applications with a load, a limit on their latency and a floor on quality; variants with their speed and price on
each hardware; what runs now. Decided: how many instances of each variant run on which machines, and which share of each
load they get. A change is paid for as well: what has to be loaded costs while it loads.

==========  =====================  ====================================================================================
letter      `Snapshot` field       meaning
==========  =====================  ====================================================================================
b           `asked`                application: load L_b, need_b = slack L_b (or L_b + slack), SLO S_b, floor a_b
v           `items`                a way to run a variant on a type of machine (`kinds`); with sharing `dedicated`, of
                                   one application
C_v         `C`                    cost of an instance, currency units per hour
T_bv, Q_bv  `serves`               latency (ms) and saturation rate (queries/s) for the queries of b
Tl_v        `Choice.load_s`        seconds to load it
N_g         `N`                    instances of group g that run now (a variant wherever it runs)
R_v         `Kind.needs`           what an instance takes of each resource
lambda      `weight`               1/s, what a second of loading weighs against a second of serving: 1 / horizon, or
                                   with `loading` weighted the paper's `load_weight_per_s`; 0 where nothing runs
x_v         --                     instances that shall run
p_g         --                     instances to load: max(x - N, 0)
y_bv        --                     queries/s of b served by v, where v may serve several applications
==========  =====================  ====================================================================================

::

    min  rent + lambda sum_g C_g Tl_g p_g                                           gross; net = gross - sum C N
    (1)  sum_{v of b alone} Q_bv x_v + sum_{v common} y_bv >= need_b                every load, by eligible variants
    (2)  sum_b y_bv / Q_bv <= x_v                                                   an instance at saturation is full
    (3)  sum_v R_v^type x_v <= R_total^type                                         limits.capacity: what is taken
    (4)  p_g >= sum_{v of g} x_v - N_g,  p_g >= 0,  x_v whole, 0 <= x_v
    eligible: T_bv <= S_b, quality >= a_b: bounds, not rows

Machines are rented by `planner.program`, whose rows say what they cost and how many there may be. Of a type all have a
price for the whole machine, whatever is on it (`planner.placing` says what one may hold; an instance that says nothing
of what it computes with takes one alone), and cost nothing where what is on them is paid by itself: C x is a fee
beside them then, and they are used up by what all that they hold takes together.

(1) to (4) are Section 4.2.1, with one cover row per application (the paper sums over all models at once) and with gross
cost, whose argmin is that of the paper's net cost but of which a relative gap means something. With machines the plan
is called feasible only once every instance has its machine.

The files, in the order in which they are used: `question` (the door), `kinds` and `wish` (reading), `form` (the
programs), `ways` (the conversation), `places` (instances on machines), `actions` and `draft` (the plan), `why` (no
plan, and what would give one), `size` (room for waiting), `alone` (what is late though nobody waits), `near` (cheaper
plans near by), `bursts` (what bursts ask of every plan), `baselines/` (rules to compare with).
"""
