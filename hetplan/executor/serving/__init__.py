"""The processes that serve: a worker that holds models, a router that carries out the plan's dispatch.

Both are single event loops in plain Python; a worker of the sleep model loads nothing but the standard library.
"""
