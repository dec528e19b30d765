"""Skips what needs data that are absent."""

import pytest

from hetplan_papers.datasets.sources import DATA, present


@pytest.fixture
def needs_data(request: pytest.FixtureRequest) -> None:
    """Skip where the data set that the test's module is named after is not at hand."""
    name = request.module.DATA_SET
    if not present(name):
        pytest.skip(f"no published data in {DATA / name}; set HETPLAN_DATA to the folder that holds them")
