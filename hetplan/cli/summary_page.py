"""The summary of a plan on a page of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetplan.profiles.summary_lines import VIEWS, Closing, summary_lines

if TYPE_CHECKING:
    from hetplan.cli.output import Page
    from hetplan.profiles.plan_summary import Summary

__all__ = ["show_summary"]


def show_summary(summary: Summary, page: Page, closing: Closing) -> None:
    """Write the summary to the page."""
    for line in summary_lines(summary, closing):
        if line.split(" ")[0] in VIEWS:
            page.columns(line)
        else:
            page.line(line)
