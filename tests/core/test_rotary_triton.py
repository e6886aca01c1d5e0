"""The Triton kernel without a GPU: interpreted against float64, compiled for Hopper, and refusing what does not fit.

Triton reads TRITON_INTERPRET when it is imported, so all that needs it runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from posenc_core import rotary_triton
from posenc_core.rotary_triton import is_available, rotate

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "gpu"))
from rotation import CASES  # noqa: E402

needs_triton = pytest.mark.skipif(not is_available(), reason="triton is not installed: kernel not compiled")


def python(*arguments, **variables):
    """What a new Python prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    return json.loads(python(str(ROOT / "tests" / "gpu" / "rotation.py"), TRITON_INTERPRET="1"))


@pytest.mark.parametrize(
    "case",
    CASES if is_available() else [
        pytest.param(None, marks=pytest.mark.skip(reason="triton is not installed: kernel not interpreted"))
    ],
    ids=str,
)  # fmt: skip
def test_the_interpreted_kernel_is_as_near_to_float64_as_its_dtype_allows(case, interpreted):
    assert interpreted[str(case)] <= 1


COMPILE = """
import json
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from posenc_core import rotary_triton
kernel = rotary_triton._rotate_block

def code(dtype, rows, layout):
    values = dict(UNIT=16, TABLE_UNIT=16, ROWS=rows, PAIRS=64, PADDED=64, REST=0, REST_PADDED=1,
                  INTERLEAVED=layout == "interleaved", WIDE=triton.language.float32)
    signature, constants, known = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in values or name.endswith("_d"):
            signature[name], constants[(i,)] = "constexpr", values.get(name, 1)
        elif name in ("q", "q_out", "k", "k_out", "cos", "sin"):
            signature[name] = "*fp32" if name in ("cos", "sin") else "*" + dtype
            known[(i,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32" if name == "sign" else "i32"
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=known)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]

print(json.dumps({f"{dtype} {layout}": code(dtype, rows, layout)
                  for dtype, rows in (("bf16", 16), ("fp16", 16), ("fp32", 8)) for layout in ("half", "interleaved")}))
"""


@needs_triton
def test_compiled_for_hopper_all_reads_and_writes_are_of_16_bytes(tmp_path):
    codes = json.loads(python("-c", COMPILE, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0"))
    for name, code in codes.items():
        accesses = re.findall(r"\b(ld|st)\.global\S*?\.(v\d)?\.?b(\d+) ", code)
        assert set(accesses) == {("ld", "v4", "32"), ("st", "v4", "32")}, name
        # four heads at a time, of each two reads and two writes a thread, for q and for k
        assert sum(way == "st" for way, *_ in accesses) == 2 * 4 * 2, name
        assert "shfl" not in code, name
        if not name.startswith("fp32"):  # there the tables are dealt out to the threads once; the data never is
            assert "ld.shared" not in code, name


@needs_triton
@pytest.mark.parametrize("fault", ["OutOfResources", "PTXASError", "a C compiler that fails"])
def test_what_triton_cannot_compile_is_one_kind_of_error(fault):
    """A C compiler makes what starts the kernel."""
    from triton.runtime import errors

    failed = subprocess.CalledProcessError(1, "cc")
    raised = {"OutOfResources": lambda: errors.OutOfResources(9, 8, "shared memory"),
              "PTXASError": lambda: errors.PTXASError("no ptxas")}.get(fault, lambda: failed)()  # fmt: skip
    q, table = torch.zeros(1, 1, 2, 8), torch.ones(2, 4)
    kernel = mock.MagicMock()
    kernel.__getitem__.return_value.side_effect = raised
    with (
        mock.patch.object(rotary_triton, "_rotate_block", kernel),
        pytest.raises(RuntimeError, match="could not compi"),
    ):
        rotate(q, None, table, table, "half", 1.0, q, None)


def test_without_triton_the_module_says_so():
    blocked = "import sys; sys.modules['triton'] = None; from posenc_core.rotary_triton import is_available as a"
    assert python("-c", blocked + "; print(a())") == "False\n"


@pytest.mark.parametrize(
    "change",
    [
        {"k": torch.zeros(2, 1, 4, 8)}, {"k": torch.zeros(1, 1, 5, 8)}, {"k": torch.zeros(2, 1, 5, 6)},
        {"k": torch.zeros(2, 1, 5, 8, dtype=torch.float16)}, {"q_out": torch.zeros(2, 3, 5, 7)},
        {"q_out": torch.zeros(2, 3, 5, 8, dtype=torch.float64)}, {"k_out": torch.zeros(2, 2, 5, 8)},
        {"k": None}, {"k_out": None},
        {"cos": torch.ones(4, 4)}, {"cos": torch.ones(5, 5), "sin": torch.ones(5, 5)}, {"sin": torch.ones(5, 3)},
        {"cos": torch.ones(3, 1, 5, 4), "sin": torch.ones(3, 1, 5, 4)},
        {"cos": torch.ones(1, 3, 5, 4), "sin": torch.ones(1, 3, 5, 4)},
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused(change):
    given = {"q": torch.zeros(2, 3, 5, 8), "k": torch.zeros(2, 1, 5, 8), "cos": torch.ones(5, 4), "layout": "half"}
    given |= {"sin": torch.ones(5, 4), "sign": 1.0, "q_out": torch.zeros(2, 3, 5, 8), "k_out": torch.zeros(2, 1, 5, 8)}
    with pytest.raises(ValueError, match=r"do(es)? not fit q|legal together only"):
        rotate(**given | change)


LIKE_CUDA = """
import torch
from posenc_core import rotary, rotary_triton

rotary._cpu = rotary._cuda  # tensors lie on the CPU, where the interpreter works
cos, sin = (f(torch.arange(5.0)[:, None] / torch.tensor([1.0, 3.0, 9.0])) for f in (torch.cos, torch.sin))
worst, refused = 0.0, []
for layout in ("half", "interleaved"):
    for shapes in (
        [(2, 4, 5, 8), (2, 2, 5, 8)], [(3, 5, 6)], [(5, 7)], [(2, 4, 5, 8), (1, 2, 5, 8)], [(2, 2, 2, 5, 6)]
    ):
        for c, s in ((cos, sin), (cos[None, None], sin[None, None]), (cos[:1], sin[:1]), (cos.expand(2, 5, 3),) * 2):
            if not all(rotary._broadcasts(c.shape[:-1], shape[:-1]) for shape in shapes):
                continue
            xs = [torch.randn(shape).requires_grad_() for shape in shapes]
            apply = rotary.apply_rotary_qk if len(xs) == 2 else lambda x, *more: (rotary.apply_rotary(x, *more),)
            given = [torch.randn(shape) for shape in shapes]
            results = []
            for fused in (True, False):
                rotary_triton._COMPILED.clear()
                outs = apply(*xs, c, s, layout, fused)
                results.append([*outs, *torch.autograd.grad(outs, xs, given)])
                if fused and not rotary_triton._COMPILED:
                    refused.append(len(shapes[0]))
            for a, b in zip(*results):
                worst = max(worst, (a - b).abs().max().item())
            y = xs[0].detach().clone()
            assert rotary.apply_rotary(y, c, s, layout, True, inplace=True) is y and y._version > 0
            worst = max(worst, (y - results[1][0]).abs().max().item())
print(worst, sorted(set(refused)))
"""


@needs_triton
def test_apply_rotary_as_on_cuda_gives_what_it_gives_eagerly():
    """Also of fewer dimensions and with other tables; what the kernel does not take, it leaves to the eager path."""
    worst, refused = python("-W", "error::RuntimeWarning", "-c", LIKE_CUDA, TRITON_INTERPRET="1").split(" ", 1)
    assert float(worst) < 1e-6
    assert json.loads(refused) == [4, 5]  # batches of two sizes or tables for each head; five dimensions
