"""A hook of mkdocs: links from a page to files outside `docs/` lead to the source on the site."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page with links that leave the folder as addresses of the repository."""

    def lead(found: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), found[1]))
        inside = place == "docs" or place.startswith("docs/")
        return found[0] if inside else f"]({config['repo_url']}/{place}"

    return LINK.sub(lead, markdown)
