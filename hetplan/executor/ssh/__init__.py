"""The `ssh` target: `ssh` reaches another machine, whose `local` target does what is asked."""
