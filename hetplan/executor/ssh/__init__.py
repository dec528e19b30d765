"""The `ssh` target: a connection to another machine, and the agent there that does as the `local` target does."""
