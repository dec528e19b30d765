"""A server on this machine: a page to plan by hand, and `/v1/solve`, `/v1/verify`, `/v1/simulate` for other programs.

Needs the extra `desk` (starlette and uvicorn). Requests hold documents, never names of files.
"""
