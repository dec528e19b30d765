"""The planning questions, each named by what it decides and written in the letters of its paper.

A question is a package. `question.py` in it holds the question itself: what fits it, how it reads the inputs, and
`decide`, its conversation with the solvers. Beside it are its formulations, options and explanations.
"""
