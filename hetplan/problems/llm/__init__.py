r"""Fleets that make text token by token: which GPUs, how many, how joined, and how they batch.

The letters, and the program that the other rooms speak of:

=========  =================================================  =========  ============================================
letter     meaning                                            letter     meaning
=========  =================================================  =========  ============================================
s          a class of requests, share p_s of the rate lambda   x_st       requests of s per second on type t
t          a type: variant, hardware, degree, role             n_t        instances of t (k_t of them on a machine)
m_t        iterations per second of all instances of t         K_t        room for KV of an instance, in tokens
k          a piece (a, b, c, d, e) of the law of t             T          the limit on the time per token
=========  =================================================  =========  ============================================

A request with i tokens in and o out takes n = i + o - 1 tokens of batches, o - 1 decoding steps, reads v = (o - 1)(i +
o/2) tokens of KV, has w = i^2/2 pairs of prefill attention, and holds kv >= v + i tokens of KV summed over iterations.
Classes take the means of these over their requests (never those of a mean length)::

    min sum_o c_o n_o
    (1) sum_s x_st (b_k n_s + c_k v_s + d_k s_s + e_k w_s) + a_k m_t <= n_t      every piece k of type t
    (2) sum_s x_st kv_s <= K_t m_t
    (3) sum_s x_st n_s  <= most_tokens_t m_t
    (4) sum_s x_st s_s  <= most_seqs_t m_t
    (5) n_t <= T m_t
    (6) sum_t x_st = p_s lambda;   of what is late on its type even alone, no more than each percentile leaves

Without (5) every schedule with these laws keeps the rows: the optimum is a bound on the cost. With (5) it is a plan for
engines whose mean iteration is at most T, and no more: queues and bursts are in no row. So the fleet is sized by
simulation, token by token (`size`); the plan says both.

To read on, in the order of a solve: `fits` (which files ask), `question`, `wish` (reading the files), `form` (the
program), `judge` (what a simulation shows), `size` (fleets as the sizing search asks for them), `alike` (large fleets),
`why` (there is no fleet), `draft` (the plan).
"""
