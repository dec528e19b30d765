"""Profiling and load generation: the folder, beside `executor/`, that runs things outside hetplan."""
