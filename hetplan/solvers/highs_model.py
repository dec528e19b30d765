"""One HiGHS model and the form that it holds.

Matrices go in as arrays. A linear program comes back with duals, or with a Farkas ray where it is infeasible and a
direction where it is unbounded.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.planner.forms.program import point_faults
from hetplan.planner.terms import Event
from hetplan.planner.tolerances import OPTIMAL_GAP
from hetplan.solvers.engine import without_prints

if TYPE_CHECKING:
    from hetplan.planner.terms import OnEvent

__all__ = ["DEFAULT_GAP", "LARGEST", "Found", "HighsModel", "Word", "quiet_highs"]

DEFAULT_GAP = OPTIMAL_GAP / 2
"""The relative gap at which an engine stops where the limits name none: half of what a plan calls optimal, since
engines measure the gap each in its own way."""
LARGEST = 1e15
"""HiGHS refuses matrices with larger entries."""
SMALLEST = 1e-12
"""The least matrix entry HiGHS can be set to keep (it drops those below 1e-9 by default)."""


class Word(StrEnum):
    """An engine's verdict before it is settled; `EITHER` is "infeasible or unbounded"."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    EITHER = "either"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Found:
    """What an engine came back with, in the form's own sense and including its offset."""

    word: Word
    stop: Stop = Stop.FINISHED
    point: Vector | None = None
    bound: float | None = None
    row_duals: Vector | None = None
    ray: Vector | None = None
    work: dict[str, float] = field(default_factory=dict)
    detail: str = ""

    @property
    def finite_bound(self) -> float | None:
        """The bound, where it is a number that means anything."""
        return self.bound if self.bound is not None and np.isfinite(self.bound) and abs(self.bound) < 1e20 else None

    def answered(
        self, status: Status, *, point: Vector | None = None, ray: Vector | None = None, bound: float | None = None
    ) -> Answer[Vector]:
        """The answer of this status, with what the engine said of its end and its work."""
        work = dict(self.work)
        return Answer(status, self.stop, point=point, ray=ray, bound=bound, work=work, detail=self.detail)


def quiet_highs() -> Any:
    """HiGHS with no model yet, and printing nothing: 1.16 says who it is as soon as it is made, before it is asked."""
    import highspy

    with without_prints():
        made = highspy.Highs()
    made.setOptionValue("output_flag", False)
    return made


class HighsModel:
    """One HiGHS model and the form it holds now."""

    is_family = False
    """Whether it holds one form of many after the other: then no smaller whole-number programs look for points, which
    takes as long as all the rest."""

    def __init__(self, form: Milp) -> None:
        import highspy

        self.api: Any = highspy
        self.highs = quiet_highs()
        self.form = form
        self.begun = False
        """Whether HiGHS was given a feasible point to begin from."""
        for option, value in (("small_matrix_value", SMALLEST), ("mip_abs_gap", 0.0)):
            self.highs.setOptionValue(option, value)
        self.hand_over()

    def hand_over(self) -> None:
        """Pass HiGHS the whole form."""
        form, matrix = self.form, self.form.matrix
        n_rows, n_columns = matrix.shape
        status = self.highs.passModel(
            n_columns,
            n_rows,
            int(matrix.nnz),
            int(self.api.MatrixFormat.kColwise),
            int(self.sense_of(form)),
            float(form.offset),
            form.cost,
            form.lower,
            form.upper,
            form.row_lower,
            form.row_upper,
            matrix.indptr.astype(np.int32, copy=False),
            matrix.indices.astype(np.int32, copy=False),
            matrix.data,
            form.whole.astype(np.int32),
        )
        if status == self.api.HighsStatus.kError:
            raise SolverFailed("highs", "HiGHS does not accept the model")

    def sense_of(self, form: Milp) -> Any:
        """HiGHS' word for minimise or maximise."""
        return self.api.ObjSense.kMinimize if form.sense == "min" else self.api.ObjSense.kMaximize

    def begin_at(self, point: Vector) -> None:
        """Give HiGHS a first point of a mixed-integer program."""
        self.highs.setSolution(point.size, np.arange(point.size, dtype=np.int32), point)
        self.begun = not point_faults(self.form, point)[0]

    def run(self, limits: Limits, on_event: OnEvent | None) -> Found:
        """Solve what the model holds."""
        self._limit(limits)
        listener = _Listener(limits, on_event, self.form)
        listener.attach(self.highs)
        try:
            with listener.hearing_signals():
                self._go()
        finally:
            self.highs.clearCallbacks()
        if listener.raised is not None:
            raise listener.raised
        status, statuses = self.highs.getModelStatus(), self.api.HighsModelStatus
        if self.form.pure_lp and status in (statuses.kUnboundedOrInfeasible, statuses.kUnknown):
            self.highs.setOptionValue("presolve", "off")
            self._go()
            self.highs.setOptionValue("presolve", "choose")
            status = self.highs.getModelStatus()
        return self._read_found(status)

    def _limit(self, limits: Limits) -> None:
        work = np.iinfo(np.int32).max if limits.work is None else max(0, limits.work)
        for option, value in (
            ("threads", limits.threads),
            ("random_seed", limits.seed % (2**31 - 1)),
            ("time_limit", np.inf if limits.seconds is None else limits.seconds),
            ("mip_rel_gap", DEFAULT_GAP if limits.gap is None else limits.gap),
            ("mip_max_nodes", work),
            ("simplex_iteration_limit", work),
            # They look for a first point, for a better one, and for a smaller program: longer than all the rest takes
            # of a small program that begins at a good point.
            ("mip_heuristic_run_feasibility_jump", not self.begun and not self.is_family),
            ("mip_heuristic_run_root_reduced_cost", not self.begun and not self.is_family),
            ("mip_heuristic_run_rins", not self.is_family),
            ("mip_heuristic_run_rens", not self.is_family),
            ("mip_allow_restart", not self.begun),
        ):
            self.highs.setOptionValue(option, value)

    def _go(self) -> None:
        error = self.api.HighsStatus.kError
        if self.highs.run() == error:
            # HiGHS keeps one scheduler per calling thread, with the thread count it first had there.
            self.api.Highs.resetGlobalScheduler(True)
            if self.highs.run() == error and self._go_without_presolve() == error:
                raise SolverFailed("highs", f"HiGHS stopped with {self._words(self.highs.getModelStatus())}")

    def _go_without_presolve(self) -> Any:
        """HiGHS finds now and then that the point it took back through presolve lies outside its bounds."""
        self.highs.setOptionValue("presolve", "off")
        try:
            return self.highs.run()
        finally:
            self.highs.setOptionValue("presolve", "choose")

    def _words(self, status: Any) -> str:
        return str(self.highs.modelStatusToString(status))

    def _read_found(self, status: Any) -> Found:
        statuses, info = self.api.HighsModelStatus, self.highs.getInfo()
        lp = self.form.pure_lp
        work = {"iterations": float(max(0, info.simplex_iteration_count))}
        if not lp:
            work["nodes"] = float(max(0, info.mip_node_count))
        if status == statuses.kInfeasible:
            return Found(Word.INFEASIBLE, ray=self._ray(self.highs.getDualRay) if lp else None, work=work)
        if status == statuses.kUnbounded:
            point = self._point() if lp else None
            return Found(Word.UNBOUNDED, point=point, ray=self._ray(self.highs.getPrimalRay) if lp else None, work=work)
        if status == statuses.kUnboundedOrInfeasible:
            return Found(Word.EITHER, work=work)
        stop = {
            statuses.kTimeLimit: Stop.TIME,
            statuses.kIterationLimit: Stop.WORK,
            statuses.kSolutionLimit: Stop.WORK,
            statuses.kInterrupt: Stop.CANCELLED,
            statuses.kHighsInterrupt: Stop.CANCELLED,
        }.get(status, Stop.FINISHED)
        bound = None if lp else float(info.mip_dual_bound)
        if status == statuses.kOptimal:
            solution = self.highs.getSolution()
            point = np.asarray(solution.col_value, dtype=float)
            if lp:
                duals = np.asarray(solution.row_dual, dtype=float) if solution.dual_valid else None
                return Found(Word.OPTIMAL, point=point, bound=self.form.value(point), row_duals=duals, work=work)
            return Found(Word.OPTIMAL, point=point, bound=bound, work=work)
        point = self._point()
        word = Word.NOTHING if point is None else Word.FEASIBLE
        return Found(word, stop, point=point, bound=bound, work=work, detail=self._words(status))

    def _point(self) -> Vector | None:
        if self.highs.getInfo().primal_solution_status != int(self.api.SolutionStatus.kSolutionStatusFeasible):
            return None
        return np.asarray(self.highs.getSolution().col_value, dtype=float)

    def _ray(self, get: Any) -> Vector | None:
        _, there_is, ray = get()
        return np.array(ray, dtype=float) if there_is else None


class _Listener:
    """What HiGHS calls back: stops the solve when asked, reports progress, and lets no exception cross C++."""

    def __init__(self, limits: Limits, on_event: OnEvent | None, form: Milp) -> None:
        self.cancel, self.on_event, self.lp = limits.cancel, on_event, form.pure_lp
        self.raised: BaseException | None = None
        self.bound: float | None = None

    def attach(self, highs: Any) -> None:
        # The interrupts are always listened to: only there does Python see a Ctrl-C while HiGHS works.
        if self.lp:
            highs.cbSimplexInterrupt.subscribe(self.heed)
            highs.cbIpmInterrupt.subscribe(self.heed)
            return
        highs.cbMipInterrupt.subscribe(self.heed)
        highs.cbSimplexInterrupt.subscribe(self.heed)
        if self.on_event is not None:
            highs.cbMipImprovingSolution.subscribe(self.improved)

    @contextmanager
    def hearing_signals(self) -> Iterator[None]:
        """What handlers of signals raise is kept for later: HiGHS 1.16 loses what is raised on the way to `heed`."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, partial(self._handle, handler))
        try:
            yield
        finally:
            for number, handler in handlers.items():
                if callable(handler):
                    signal.signal(number, handler)

    def _handle(self, handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:  # KeyboardInterrupt: it is raised again once HiGHS has returned
            self.raised = error

    def heed(self, event: Any) -> None:
        try:
            if self.raised is not None or (self.cancel is not None and self.cancel.is_set()):
                event.interrupt()
            elif not self.lp and self.on_event is not None:
                self.tell("bound", event.data_out)
        except BaseException as error:  # raised again once HiGHS has returned
            self.raised = error
            event.interrupt()

    def improved(self, event: Any) -> None:
        try:
            self.tell("incumbent", event.data_out)
        except BaseException as error:  # as above; the next interrupt callback stops the solve
            self.raised = error

    def tell(self, what: str, data: Any) -> None:
        bound = float(data.mip_dual_bound) if np.isfinite(data.mip_dual_bound) else None
        if self.on_event is None or (what == "bound" and (bound is None or bound == self.bound)):
            return
        self.bound = bound
        value = float(data.objective_function_value if what == "incumbent" else data.mip_primal_bound)
        seconds = float(data.running_time)
        self.on_event(Event(what, value=value if np.isfinite(value) else None, bound=bound, seconds=seconds))
