"""What a case of the benchmark will need, before it runs: memory at most, and time roughly."""

from __future__ import annotations

from posenc_core.benchmark_cases import DTYPES, Case, Config
from posenc_core.benchmark_machine import l2_bytes
from posenc_core.linear_bias import QUERIES
from posenc_core.rotary import AT_ONCE
from posenc_core.schemes.hybrid import layers_of
from posenc_core.spec import Spec


def hooks(spec: Spec) -> set[str]:
    """Where a scheme acts, a hybrid's layers together."""
    return {s.hook for s in layers_of(spec)}


def estimated_bytes(case: Case, config: Config) -> int:
    """An upper estimate of the bytes that a case has allocated at a time, inputs and weights included."""
    n, d, h, item = case.length, config.d_model, config.heads, DTYPES[case.dtype].itemsize
    wide, acts = max(4, item), hooks(case.spec)  # half precision is worked out in float32
    one = config.batch * n * d  # numbers of q
    total = 2**20  # scratch of kernels
    if acts & {"embed"}:
        total += 24 * n * d  # float64 phases and their sines, or a table in two dtypes
    if acts & {"rotate"}:
        pairs = n * config.d_head // 2
        total += 8 * pairs + 40 * min(pairs, AT_ONCE + config.d_head) + 64 * n
    if case.what in ("tables_built", "tables_cached"):  # two of a kind, to see whether the second is the first
        total += 8 * n * config.d_head if "rotate" in acts else 4 * n * d if "embed" in acts else 0
        return total + (64 * h * n if _linear(case.spec) else _bias_bytes(h, n, n) if "bias" in acts else 0)
    total += 8 * l2_bytes(case.device)  # several copies of the inputs
    if case.what == "rotation":
        total += (2 + 4 * case.backward) * one * item + (6 + 3 * case.backward) * one * wide
    if case.what in ("layer", "attention"):
        total += _attention_bytes(case, config)
    if case.what == "layer":
        total += 4 * d * d * item + (4 + 6 * case.backward) * one * item
    return total


def _linear(spec: Spec) -> bool:
    """Whether no bias is more than a number a head and distance."""
    biases = [s for s in layers_of(spec) if s.hook == "bias"]
    return bool(biases) and all(s.scheme == "alibi" for s in biases)


def _bias_bytes(heads: int, queries: int, keys: int) -> int:
    """Distances in float64, a bias in float32, cast, and once more under the causal mask."""
    return (12 * heads + 24) * queries * keys


def _attention_bytes(case: Case, config: Config) -> int:
    """q, k, v, what the scheme makes of them, the output, and everything with L² numbers."""
    n, h, item = case.length, config.heads, DTYPES[case.dtype].itemsize
    one, square = config.batch * n * config.d_model, n * n
    acts, name = hooks(case.spec), case.implementation
    tensors = 6 + (8 if case.backward else 0) + (3 if acts & {"rotate"} else 0) + (6 if acts & {"bias"} else 0)
    total = tensors * one * item + (12 * one if acts & {"rotate"} else 0)
    if name == "reference":
        scores = config.batch * h * square
        total += (5 if case.backward else 3) * scores * item + 3 * scores + 8 * square
    if "bias" not in acts:
        return total
    if name in ("reference", "bias", "bias_cached"):
        return total + _bias_bytes(h, n, n) + 2 * h * square * item
    if name == "fast" and not _linear(case.spec):  # for some queries at a time; all are kept for the gradient
        return total + _bias_bytes(h, n if case.backward else min(n, QUERIES), n)
    return total + 64 * h * n + (h * min(n, QUERIES) * n * item if case.device != "cpu" else 0)


def work(case: Case, config: Config) -> float:
    """Roughly the nanoseconds of one call; only their proportions matter, for the progress."""
    n, d, h, batch = case.length, config.d_model, config.heads, config.batch
    acts, square = hooks(case.spec), batch * n * n
    total = 5e4
    if case.what in ("tables_built", "tables_cached"):
        share = 1.0 if case.what == "tables_built" else 0.01
        bias = 20 * h * n if _linear(case.spec) else 5 * h * n * n
        numbers = {"embed": 5 * n * d, "rotate": 6 * n * config.d_head, "bias": bias}
        return total + share * sum(numbers.get(hook, 0) for hook in acts)
    if case.what == "rotation":
        one_pass = ("copy", "copy_given", "fast", "in_place", "flash_attn", "liger")
        total += batch * n * d * (1 if case.implementation in one_pass else 4)
    else:
        total += square * d / 15
        if case.implementation == "reference":
            total += 25 * h * square
        if "bias" in acts and case.implementation in ("reference", "bias"):
            total += 7 * h * n * n
    if case.what == "layer":
        total += batch * n * d * d / 7
    return total * (3.0 if case.backward else 1.0)
