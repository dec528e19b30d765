"""Searches that Circinus is compared with: set option `search` to the engine's name."""
