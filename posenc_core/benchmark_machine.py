"""Where a benchmark runs: the devices there are, and what of the machine its times depend on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posenc_core import rotary

PEERS = ("transformers", "rotary-embedding-torch", "torchtune", "flash-attn", "liger-kernel")  # as a registry has them


def devices() -> dict[str, str]:
    """The devices there are, id -> name for people; cpu is always the first."""
    found = {"cpu": f"CPU, {_cpu_name()}"}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU (MPS)"
    return found


def l2_bytes(device: str) -> int:
    """Size of the L2 cache of a CUDA device; 0 for what is none."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device == "cuda" else 0


def cpu_cache_bytes() -> int:
    """Size of the last cache of the first core, which others may share; 0 where the system does not tell (Linux)."""
    sizes = []
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            found = re.fullmatch(r"(\d+)K", (folder / "size").read_text().strip())
        except OSError:
            continue
        if found:
            sizes.append(int(found[1]) * 1024)
    return max(sizes, default=0)


def machine() -> dict[str, Any]:
    """Where a run happens, as plain values: cpu, cores, load, torch_threads, torch, numpy, gpu, cuda, driver, triton,
    compiler, fused_warm, peers, python, system, date. None stands for what there is not.

    torch_threads are those of the calling thread, so call it in the one that measures. `load` is how many processes
    wanted a core on average over the last minute. `compiler` makes the fused rotation on a CPU; `fused_warm` lists the
    devices on which that is ready by now. `peers` are the versions of the installed libraries that are timed beside.
    """
    names = devices()
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _cpu_name(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "torch_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gpu": names.get("cuda") or names.get("mps"),
        "cuda": torch.version.cuda if "cuda" in names else None,
        "driver": _driver() if "cuda" in names else None,
        "triton": _version("triton"),
        "compiler": _compiler(),
        "fused_warm": [d for d in names if rotary.fused_is_warm(d)],
        "peers": {name: version for name in PEERS if (version := _version(name))},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine_line(found: dict[str, Any]) -> str:
    """`machine()` in one line, for a caption; also of one that an older version wrote."""
    cuda = "".join(f", {name} {found[key]}" for key, name in (("cuda", "CUDA"), ("driver", "driver")) if found.get(key))
    gpu = f"{found['gpu']}{cuda}, " if found["gpu"] else ""
    load = f" under a load of {found['load']}" if found.get("load") is not None else ""
    return (f"{gpu}{found['cpu']}, {found['cores']} cores{load}, torch threads: {found['torch_threads']}, "
            f"torch {found['torch']}, Python {found['python']}, {found['system']}, {found['date']}")  # fmt: skip


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def _compiler() -> str | None:
    """First line of what the C++ compiler says of itself."""
    path = rotary.compiler()
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    return (said.strip().splitlines() or [path])[0]


def _driver() -> str | None:
    """Version of NVIDIA's kernel module."""
    try:
        found = re.search(r"Module(?: for \S+)?\s+(\d[\d.]*)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return None
    return found[1] if found else None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        found = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        if found.stdout.strip():
            return found.stdout.strip()
    return platform.processor() or platform.machine()
