"""What the papers compare with: their baselines as formulations and engines of hetplan, and their published tables.

Installed beside hetplan, every formulation here is asked by name: ``hetplan solve ... --formulation homogeneous``.
Everything is reached through `hetplan` and `hetplan.extend`.
"""
