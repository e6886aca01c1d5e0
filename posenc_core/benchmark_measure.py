"""How the benchmark measures one call: its seconds, its page faults, and the most memory it holds at a time."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

# seconds that one sample lasts at least: on a GPU, kernels queue up behind the first launch, so that a sample is the
# time of the kernels where those are longer than a launch, and else the time of the launches
SHORTEST = {"cpu": 100e-6, "cuda": 5e-3, "mps": 1e-3}
MAX_LOOPS = 1000


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile, interpolated linearly."""
    low, mid, high = np.quantile(np.asarray(samples, dtype=np.float64), [0.25, 0.5, 0.75]).tolist()
    return low, mid, high


class Timed(NamedTuple):
    """Seconds a call; on CUDA also the seconds a call until the last launch had returned, which the host spent."""

    seconds: float
    launched: float | None = None


def timed(call: Callable[[], Any], times: int, device: str) -> Timed:
    """A call, over so many in a row. Not in inference mode: there a scheme may keep no tables."""
    with torch.no_grad():
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            begin.record()
            start = time.perf_counter()
            for _ in range(times):
                call()
            launched = time.perf_counter() - start
            end.record()
            end.synchronize()
            return Timed(begin.elapsed_time(end) / 1e3 / times, launched / times)
        if device == "mps":
            torch.mps.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        if device == "mps":
            torch.mps.synchronize()
        return Timed((time.perf_counter() - start) / times)


def page_faults(device: str) -> int | None:
    """How many pages of memory this process, all its threads, has got fresh from the system since it began.

    Not counted are those that had to be read from a disk; a huge page is one. None for a GPU, whose memory is another.
    """
    if device != "cpu" or resource is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def loops(taken: float, device: str) -> int:
    """How many calls of `taken` seconds each make a sample of SHORTEST[device] seconds; MAX_LOOPS at most."""
    return min(MAX_LOOPS, max(1, math.ceil(SHORTEST[device] / max(taken, 1e-9))))


def peak_bytes(call: Callable[[], Any], device: str) -> tuple[int | None, str]:
    """Peak of the bytes that an untimed call allocates, and how that was found."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.no_grad():
            kept = call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del kept
        return peak, "torch.cuda.max_memory_allocated, one untimed call"
    if device == "mps":
        return None, "MPS reports no peak"
    # no_grad: in inference mode composite operations, and with them their temporaries, are not seen one by one
    with torch.no_grad(), _Allocations() as allocations:
        call()
    return allocations.peak, "sizes of all tensors alive in one untimed call; scratch inside a kernel is not seen"


class _Allocations(TorchDispatchMode):
    """Adds up the storages that operations of this thread create, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor):
                self._add(leaf, is_new=False)
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._add(leaf, is_new=True)
        self.peak = max(self.peak, self._now)
        return out

    def _add(self, tensor: Tensor, is_new: bool) -> None:
        """Count a tensor's storage until it is freed, if it has not been seen: 0 bytes for one that was there before.

        Known by its identity, which another storage may take over only after `freed` has forgotten it.
        """
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes() if is_new else 0

        def freed(_: object) -> None:
            self._now -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, freed)
        self._now += size
