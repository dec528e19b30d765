"""The planning questions, each named by what it decides and written in the letters of its paper.

A module `<question>.py` holds the question itself: what fits it, how it reads the inputs, and `decide`, its
conversation with the solvers. `<question>_*.py` beside it hold its formulations, options and explanations.
"""
