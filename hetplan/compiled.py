"""Plain loops, compiled where numba is installed and run as Python where it is not.

One source serves both: a `kernel` and its `part`s use only numbers, numpy arrays and loops, so that what was tested in
plain Python is what runs compiled. numba costs a third of a second to import, so modules of kernels (``*_kernels.py``)
are imported by the functions that run them, never at the top of a module.

numba compiles every function it meets by itself: with wrappers for Python, into a library of its own, into which the
functions that it calls are linked and optimised again. Here a kernel and all its parts become one library, which is
optimised once. The simulator's kernel of 84 functions compiles in a fifth of the time, and is kept in one file.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

__all__ = [
    "bare_kernel",
    "cache_folder",
    "cache_size",
    "is_compiled",
    "is_ready",
    "kernel",
    "part",
    "summing_kernel",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_KEPT = 4
_REORDERED = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function at its first call; kept on disk, free of the interpreter's lock, no fast-math.

    Divisions by zero give infinities, as in numpy. Without numba the function is returned unchanged, and so it is under
    ``NUMBA_DISABLE_JIT=1``.
    """
    return _compiled(function)


def bare_kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """As `kernel`, for a function that makes no arrays.

    numba counts the references of every array that it passes from function to function. The simulator's functions pass
    a world of arrays around and make none, so the counting is left out: it took most of the time.
    """
    return _compiled(function, _nrt=False)


def summing_kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """As `kernel`, for long sums of numbers without order: they may be added up in another one."""
    return _compiled(function, fastmath=_REORDERED)


def part(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function as part of every kernel that calls it; Python calls it as it is.

    Parameters and results that the annotations call ``int``, ``float`` or ``bool`` are that, whatever is passed; other
    parameters take what they are given. A part makes no arrays and raises nothing.
    """
    if is_compiled():
        _UNTAUGHT.append(function)
    return function


def is_compiled() -> bool:
    """Whether kernels run compiled here.

    >>> is_compiled() in (True, False)
    True
    """
    try:
        return not _settings().DISABLE_JIT
    except ImportError:
        return False


def is_ready(*kernels: Callable[..., Any]) -> bool:
    """Whether these kernels were compiled before, now or in an earlier process, for some kinds of arguments."""
    if not is_compiled():
        return True
    folder = Path(cache_folder() or os.devnull)
    return all(getattr(one, "signatures", None) or any(folder.glob(f"*/*.{one.__qualname__}-*.nbi")) for one in kernels)


def cache_size() -> int:
    """How many bytes the compiled kernels take on disk, those of earlier versions included."""
    folder = cache_folder()
    if folder is None:
        return 0
    return sum(path.stat().st_size for path in Path(folder).parent.glob("kernels-*/*/*") if path.is_file())


@cache
def cache_folder() -> str | None:
    """Where compiled kernels are kept: within the package where that can be written to, else in the user's cache.

    numba watches only a kernel's own file, and a kernel has parts in other files: the folder is therefore named by the
    content of all of them. Of what earlier versions left behind the last few stay: another process may still use one.
    None where nothing can be written: kernels are then compiled in every process.
    """
    content = hashlib.sha256()
    for source in [Path(__file__), *sorted(Path(__file__).parent.rglob("*_kernels.py"))]:
        content.update(source.name.encode() + b"\0" + source.read_bytes())
    for place in (Path(__file__).parent / "__pycache__", _users_cache()):
        folder = place / f"kernels-{content.hexdigest()[:12]}"
        try:
            fresh = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError:
            continue
        if fresh:
            for old in sorted(place.glob("kernels-*"), key=_last_used_s, reverse=True)[_KEPT + 1 :]:
                shutil.rmtree(old, ignore_errors=True)
        return str(folder)
    return None


def _users_cache() -> Path:
    """The folder for caches of this user on this platform."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "hetplan" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "hetplan"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "hetplan"


def _last_used_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process has just cleared it away
        return 0.0


def _settings() -> Any:
    """numba's settings; a module whose names are made while it is imported."""
    return import_module("numba.core.config")


def _compiled(function: Callable[Parameters, Result], **options: Any) -> Callable[Parameters, Result]:
    try:
        import numba
    except ImportError:
        return function
    settings, folder = _settings(), cache_folder()
    before = settings.CACHE_DIR
    settings.CACHE_DIR = folder or ""
    always: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        made: Callable[Parameters, Result] = numba.njit(function, cache=folder is not None, **always, **options)
    except RuntimeError:
        # No file to cache beside (a zipped or frozen package): compile at every start.
        made = numba.njit(function, **always, **options)
    finally:
        settings.CACHE_DIR = before
    if settings.DISABLE_JIT:
        return made
    dispatcher: Any = made
    dispatcher._cache = _Kept(dispatcher._cache)
    return made


class _Kept:
    """numba's cache of a kernel, which readies numba for compiling only where there is something to compile.

    numba loads all that it knows of Python and numpy before it looks for what it kept: twice the time of all the rest.
    """

    def __init__(self, cache: Any) -> None:
        self._of_numba = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_numba, name)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel as it was compiled before for these kinds of arguments; None where it never was."""
        import_module("numba.core.runtime").rtsys.initialize(target_context)
        find = getattr(self._of_numba, "_load_overload", self._of_numba.load_overload)
        with getattr(self._of_numba, "_guard_against_spurious_io_errors", contextlib.nullcontext)():
            found = find(sig, target_context)
        if found is None:
            while _UNTAUGHT:
                _teach(_UNTAUGHT.pop())
        return found


_UNTAUGHT: list[Callable[..., Any]] = []
"""Parts that numba does not know of yet: only who compiles a kernel needs to."""
# A part is lowered into the library of the kernel that is being compiled, once per library and kinds of arguments.
_LOWERED: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def _teach(function: Callable[..., Any]) -> None:
    """Make a function known to numba: its types by its annotations, its code when a kernel first calls it."""
    from numba.extending import lower_builtin, type_callable

    types: Any = import_module("numba.core.types")
    signature: Any = import_module("numba.core.typing").signature

    @cache
    def declared() -> tuple[Any, list[Any]]:
        hints = get_type_hints(function)
        returned = _number_type(hints.pop("return"))
        if returned is None:
            raise TypeError(f"{function.__qualname__}: a part returns numbers or nothing")
        return returned, [_number_type(hint) for hint in hints.values()]

    def infer(_context: Any) -> Any:
        def of(*given: Any) -> Any:
            returned, wanted = declared()
            return signature(returned, *(want or types.unliteral(got) for want, got in zip(wanted, given, strict=True)))

        of.pysig = inspect.signature(function)  # type: ignore[attr-defined]
        return of

    def lower(context: Any, builder: Any, sig: Any, arguments: Sequence[Any]) -> Any:
        lowered = _LOWERED.setdefault(context.active_code_library, {})
        if (function, sig.args) not in lowered:
            lowered[function, sig.args] = _lower(context, function, sig)
        return context.call_internal_no_propagate(builder, lowered[function, sig.args], sig, arguments)[1]

    type_callable(function)(infer)
    lower_builtin(function, types.VarArg(types.Any))(lower)


def _lower(context: Any, function: Callable[..., Any], sig: Any) -> Any:
    """Add a function to the library that is being compiled, with the options of the kernel that calls it."""
    from numba.core.compiler import compile_internal
    from numba.core.targetconfig import ConfigStack

    caller: Any = ConfigStack.top_or_none()
    flags: Any = _quick_flags()()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.nrt, flags.error_model = False, "numpy"
    if caller is not None:
        flags.fastmath = caller.fastmath
    library = context.active_code_library
    found = compile_internal(context.typing_context, context, library, function, sig.args, sig.return_type, flags, {})
    return found.fndesc


@cache
def _quick_flags() -> Any:
    """numba's options of a compilation, compared by what was set.

    numba looks up what it found for each operation by all forty options, set or not: a seventh of all compiling.
    """
    flags: Any = import_module("numba.core.compiler").Flags

    class QuickFlags(flags):  # type: ignore[misc]
        __slots__ = ()

        def __hash__(self) -> int:
            return hash(frozenset(self._values))

        def __eq__(self, other: object) -> bool:
            return (isinstance(other, QuickFlags) and self._values == other._values) or bool(super().__eq__(other))

    return QuickFlags


def _number_type(hint: Any) -> Any:
    """numba's type of an annotation that says number, truth value, nothing, or a tuple of these; None for others."""
    import numpy as np

    types: Any = import_module("numba.core.types")

    if get_origin(hint) is tuple:
        members = [_number_type(member) for member in get_args(hint)]
        return None if None in members else types.BaseTuple.from_types(tuple(members))
    known = {int: types.int64, float: types.float64, bool: types.boolean, type(None): types.none}
    with contextlib.suppress(TypeError):
        return {**known, np.uint64: types.uint64}.get(hint)
    return None
