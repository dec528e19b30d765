"""The collector rests while it is asked to, whatever happens, and only then."""

import gc

import pytest

from hetplan.profiles.validate import collector_at_rest


def test_it_rests_and_goes_on():
    with collector_at_rest():
        assert not gc.isenabled()
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_a_fault():
    with pytest.raises(ValueError, match="broken"), collector_at_rest():
        raise ValueError("broken")
    assert gc.isenabled()


def test_it_stays_off_where_somebody_wants_that():
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
