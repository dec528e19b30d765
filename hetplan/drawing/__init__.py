"""Pictures as SVG and pages as HTML, drawn from plain documents (a plan's JSON, a simulation's JSON), with no library.

Everything that is drawn is untrusted: `svg.Picture` and `page.Html` escape all text, and nothing here writes a script,
an address or a style that comes from a document.
"""
