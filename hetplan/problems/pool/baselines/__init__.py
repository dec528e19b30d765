"""Rules of the paper that others are measured against: selected by name, and imported only then."""
