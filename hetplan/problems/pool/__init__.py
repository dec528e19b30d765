"""The heterogeneous pool (Kairos, HPDC 2023): how many instances of which type to rent for one model.

Decided is how many instances run under which offer, which share of every class of queries goes to which type, and the
rule by which queries are sent. With a budget the rate is as high as it can be; with a rate, the cost as low.

The letters and the mathematics are in `letters`. To read on, in the order of a solve: `fits` (which files ask it),
`question`, `wish`, `kinds` and `machines` (reading the files; `refused`: what they may not say), `letters` (one pool),
`ways` (the conversation with engines), `form` (programs), `counts` (what needs no engine), `rated` (what given counts
carry), `why` (there is no pool), `draft` (the plan). Only when named: `ways_named`, `size` (sizing by simulation),
`listed` and `search` (trying many pools), `baselines`.
"""
