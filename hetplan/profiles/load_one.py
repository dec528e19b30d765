"""One kind of file by itself: a profile, an SLO or a state, without the other two."""

from __future__ import annotations

from hetplan.errors import InputError
from hetplan.profiles.load import Given, Loaded, count_observed, read_kind
from hetplan.profiles.profile import Profile
from hetplan.profiles.references import References
from hetplan.profiles.slo import Slo
from hetplan.profiles.state import State
from hetplan.profiles.validate import collector_at_rest
from hetplan.profiles.yaml_text import with_lines

__all__ = ["load_profile", "load_slo", "load_state", "read_profile"]


def read_profile(*sources: Given) -> Loaded[Profile]:
    """A profile read, merged and checked once, for many calls of `load_inputs`."""
    with collector_at_rest():
        loaded = read_kind(sources, "profile", Profile)
        if loaded.model is not None:
            references = References(loaded.model, loaded.known, loaded.file_of, loaded.places)
            references.check_profile()
            loaded.faults += references.drain()
        if loaded.faults or loaded.model is None:
            raise InputError(with_lines(dict.fromkeys(loaded.faults)))
        return loaded


def load_profile(*sources: Given) -> Profile:
    """The profile that these files make together, its own references checked."""
    loaded = read_profile(*sources)
    assert loaded.model is not None
    return loaded.model


def load_slo(source: Given) -> Slo:
    """The SLO of one file, its observed sizes counted; references and traces are checked by `load_inputs`."""
    loaded = read_kind([source], "slo", Slo)
    if loaded.faults or loaded.model is None:
        raise InputError(with_lines(loaded.faults))
    slo, faults = count_observed(loaded.model, loaded.file_of)
    if faults:
        raise InputError(with_lines(faults))
    return slo


def load_state(source: Given) -> State:
    """The state of one file; its references are checked by `load_inputs`."""
    loaded = read_kind([source], "state", State)
    if loaded.faults or loaded.model is None:
        raise InputError(with_lines(loaded.faults))
    return loaded.model
