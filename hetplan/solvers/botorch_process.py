"""The searches of `search` with BoTorch's exact process (extra ``bayes``): the reference for the light one.

Kernel, scaling, prior of width and grid are those of `LightProcess`; fitting and posterior are GPyTorch's, in double
precision, a batch of settings at a time (a joint posterior of all would need gigabytes).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox
from hetplan.solvers.gaussian_process import TREND, UNIT, LightProcess
from hetplan.solvers.search import BlackBoxSearch, Cmbo, StructCi

__all__ = ["BotorchProcess", "CmboBotorch", "StructCiBotorch"]

Vector = NDArray[np.float64]

BATCH = 4096


class BotorchProcess(LightProcess):
    """Width, noise and scale are chosen as the light process does; the posterior is BoTorch's."""

    def posterior(self) -> tuple[Vector, Vector]:
        """Mean and deviation at every setting, by `SingleTaskGP` with the same kernel."""
        if not self.at:
            return super().posterior()
        super().posterior()
        import torch  # pyright: ignore[reportMissingImports]

        model = _model(self)
        means, deviations = [], []
        with torch.no_grad():
            for begin in range(0, len(self.points), BATCH):
                rows = torch.tensor(self.points[begin : begin + BATCH, None, :], dtype=torch.double)
                found = model.posterior(rows)
                means.append(found.mean.reshape(-1).numpy())
                deviations.append(found.variance.reshape(-1).clamp_min(1e-9).sqrt().numpy())
        mean, deviation = np.concatenate(means), np.concatenate(deviations)
        return self.centre + self.scale * mean, self.scale * deviation


def _model(process: LightProcess) -> Any:
    """The process with fixed hyperparameters."""
    import torch  # pyright: ignore[reportMissingImports]
    from botorch.models import SingleTaskGP  # pyright: ignore[reportMissingImports]
    from gpytorch.kernels import Kernel  # pyright: ignore[reportMissingImports]
    from gpytorch.means import ZeroMean  # pyright: ignore[reportMissingImports]

    width = process.width

    apart, span = torch.tensor(process.apart, dtype=torch.double), torch.tensor(process.span, dtype=torch.double)
    slope, middle = torch.tensor(process.slope, dtype=torch.double), torch.tensor(process.ordered, dtype=torch.double)

    class DistanceAndTrend(Kernel):  # type: ignore[misc]
        def forward(self, x1: Any, x2: Any, diag: bool = False, last_dim_is_batch: bool = False, **_: Any) -> Any:
            del last_dim_is_batch
            if not diag:
                x1, x2 = x1.unsqueeze(-2), x2.unsqueeze(-3)
            far = (x1 != x2).double() * apart + (torch.round(x1 * span) - torch.round(x2 * span)).abs()
            trend = (x1 * slope - middle) * (x2 * slope - middle)
            return torch.exp(-width / UNIT * far.sum(-1)) + TREND * trend.sum(-1)

    points = torch.tensor(process.points[process.at], dtype=torch.double)
    values = torch.tensor((np.array(process.values) - process.centre) / process.scale, dtype=torch.double)
    noise = torch.tensor(np.array(process.noise) / process.scale**2 + process.jitter, dtype=torch.double)
    model = SingleTaskGP(
        points,
        values[:, None],
        noise[:, None],
        covar_module=DistanceAndTrend(),
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    return model.eval()


class _Lazy:
    """Engines that need the extra say so before they are used."""

    def version(self) -> str:
        """BoTorch's version, or "" where it is not installed."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("botorch")
        except PackageNotFoundError:
            return ""

    def why_not(self, form: BlackBox) -> str:
        """Not installed, or a wish that it does not know."""
        missing = "" if self.version() else "botorch is not installed; run: pip install 'hetplan[bayes]'"
        return missing or ("" if form.aim.cheapest else "it looks for the least cost only")


class StructCiBotorch(_Lazy, StructCi):
    """The default search with BoTorch's process."""

    name: ClassVar[str] = "struct-ci-botorch"

    def begin(self, form: BlackBox, seed: int) -> BlackBoxSearch:
        """The search itself."""
        return self.search(form, seed, BotorchProcess)


class CmboBotorch(_Lazy, Cmbo):
    """The paper's search with BoTorch's process."""

    name: ClassVar[str] = "cmbo-botorch"

    def begin(self, form: BlackBox, seed: int) -> BlackBoxSearch:
        """The search itself."""
        return self.search(form, seed, BotorchProcess)
