"""Applying plans to hosts: it sees plans and dispatch, never problems or solvers."""
