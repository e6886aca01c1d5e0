"""The rotation in one pass over memory on CPUs: rotary.cpp, compiled at first use (arXiv:2104.09864)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("rotary.cpp")
# contraction off: the fused multiply-adds are those that the source names, so that the bits are the eager path's
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off")
WISHES = (("-march=native", "-fopenmp"), ("-march=native",), ())  # the first that this compiler takes
DTYPES = {torch.float32: "rotate_float32", torch.float64: "rotate_float64", torch.bfloat16: "rotate_bfloat16"}
PARALLEL = 1 << 15  # numbers below which one thread is faster
TIMEOUT = 60.0  # seconds for the compiler

_LOCK = threading.Lock()
_library: ctypes.CDLL | None = None
_failure = ""  # what the compiler, or the lack of one, came to


_Sizes = ctypes.c_int64 * 14  # struct Sizes of rotary.cpp


def warm() -> bool:
    """Whether the kernel is there; waits for nothing."""
    return _library is not None


def load() -> None:
    """Compile and load the kernel, once a process. RuntimeError or OSError if that cannot be done, now and later."""
    global _library, _failure
    with _LOCK:
        if _failure:
            raise RuntimeError(_failure)
        if _library is None:
            try:
                _library = _compile()
            except (OSError, RuntimeError) as error:
                _failure = str(error) or type(error).__name__
                raise


@cache
def compiler() -> str | None:
    """Path of the C++ compiler: the program that CXX names, without options, else the first of c++, g++ and clang++;
    None without one.
    """
    return next(filter(None, map(shutil.which, (os.environ.get("CXX") or "c++", "g++", "clang++"))), None)


def _compile() -> ctypes.CDLL:
    found = compiler()
    if found is None:
        raise RuntimeError("no C++ compiler (c++, g++, clang++, or what CXX names)")
    said = ""
    with tempfile.TemporaryDirectory(prefix="posenc_core_", ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "rotary.so"
        for wish in WISHES:
            command = [found, *FLAGS, *wish, str(SOURCE), "-o", str(made)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
            except subprocess.TimeoutExpired as error:
                raise RuntimeError(f"{found} did not end within {TIMEOUT:.0f} s") from error
            if done.returncode == 0:
                library = ctypes.CDLL(str(made))  # stays loaded when its file is gone
                break
            said = said or done.stderr.strip().split("\n")[0]
        else:
            raise RuntimeError(f"{found} cannot compile {SOURCE.name}: {said}")
    for name in DTYPES.values():
        function = getattr(library, name, None)
        if function is None:
            raise RuntimeError(f"{found} made a library without {name}")
        function.argtypes = [ctypes.c_void_p] * 4 + [_Sizes] + [ctypes.c_int] * 3
        function.restype = None
    return library


def fits(x: Tensor) -> bool:
    """Whether the kernel can rotate x: [L, D] to [B, H, L, D], of a known dtype, features adjacent."""
    known = x.device.type == "cpu" and x.dtype in DTYPES and 2 <= x.dim() <= 4
    return known and (x.stride(-1) == 1 or x.shape[-1] == 1)


def is_readable(x: Tensor) -> bool:
    """Whether the numbers of x lie on the CPU where its address says, as they are."""
    return x.device.type == "cpu" and x.layout == torch.strided and not x.is_neg() and not x._is_zerotensor()


def rotate(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: str, backwards: bool
) -> None:
    """Rotate each of xs into its out, which may be itself. Needs warm(), and fits() of all.

    x, out [..., L, D] of one dtype; cos, sin [..., L, R/2], broadcastable, float64 for float64, else float32.
    backwards turns by the negative angles, as gradients do.
    """
    assert _library is not None
    pairs = cos.shape[-1]
    if cos.stride() != sin.stride() or cos.stride(-1) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    table, function, half = _strides(cos), getattr(_library, DTYPES[xs[0].dtype]), layout == "half"
    tables = cos.data_ptr(), sin.data_ptr()
    for x, out in zip(xs, outs, strict=True):
        *outer, width = x.shape
        sizes = _Sizes(*_ONES[x.dim()], *outer, pairs, width, *_strides(x), *_strides(out), *table)
        threads = torch.get_num_threads() if x.numel() >= PARALLEL else 1
        function(x.data_ptr(), out.data_ptr(), *tables, sizes, half, backwards, threads)


_ONES: dict[int, tuple[int, ...]] = {2: (1, 1), 3: (1,), 4: ()}


def _strides(x: Tensor) -> tuple[int, ...]:
    """Strides over batch, heads and length; 0 where x has one entry or no such dimension."""
    own = [stride if size > 1 else 0 for size, stride in zip(x.shape[:-1], x.stride(), strict=False)]
    return (0,) * (3 - len(own)) + tuple(own)
