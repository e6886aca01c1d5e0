"""Where the tests of this folder run: on CUDA, or, to try the tests themselves, with POSENC_DEVICE=cpu on a CPU."""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = os.environ.get("POSENC_DEVICE", "cuda")
marks = [
    pytest.mark.cuda,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="no CUDA device: not run on CUDA"),
]
cuda_only = pytest.mark.skipif(DEVICE != "cuda", reason="asks something of CUDA itself")


def peak(call):
    """The result of a call, and the bytes that it had allocated at most beside what there was before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated() - before


def normal(*shape, dtype=torch.float32, seed=0):
    """The same numbers on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(DEVICE, dtype)
