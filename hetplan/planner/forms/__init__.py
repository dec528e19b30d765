"""Mathematical questions, free of papers and engines: one file per form."""
