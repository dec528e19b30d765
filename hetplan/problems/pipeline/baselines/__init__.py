"""What others do, for comparison: selected by name, and imported only then."""
