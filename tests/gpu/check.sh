#!/usr/bin/env bash
# Everything that needs a GPU: the tests marked cuda, then the benchmark, whose tables come last.
#
#   bash tests/gpu/check.sh [FOLDER]
#
# Needs torch, numpy, pydantic and pytest (triton comes with torch) and installs nothing. What takes too long is
# interrupted, so that all ends within four minutes. With a FOLDER, layer.json, attention.json and rotation.json there
# hold the runs with their machine, and tables.txt what is printed of them.
# Exit status: 0; 1 if a test or a benchmark failed, after the tables; 2 if a package is missing. Without a GPU it says
# so and ends with 0. DEVICE=cpu tries the script itself, with small sizes. PYTHON=... chooses another Python.
set -euo pipefail
folder=${1:+$(mkdir -p "$1" && cd "$1" && pwd)}
cd "$(dirname "$0")/../.."

python=${PYTHON:-python3}
device=${DEVICE:-cuda}
status=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH}

missing=$("$python" - <<'PY'
from importlib.util import find_spec
print(", ".join(name for name in ("torch", "numpy", "pydantic", "pytest") if find_spec(name) is None))
PY
)
if [[ -n $missing ]]; then
    echo "missing: $missing. This needs torch, numpy, pydantic and pytest, and installs nothing itself." >&2
    exit 2
fi
if [[ $device == cuda ]] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "not run on CUDA: no CUDA device"
    exit 0
fi

if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
fi
"$python" - <<'PY'
import importlib.util
import platform

import torch

versions = {"Python": platform.python_version(), "torch": torch.__version__, "CUDA": torch.version.cuda}
if importlib.util.find_spec("triton"):
    import triton

    versions["triton"] = triton.__version__
print(", ".join(f"{name} {version}" for name, version in versions.items()))
PY

# --confcutdir: the conftest.py above this folder needs packages for other tests
POSENC_DEVICE=$device timeout -s INT -k 5 115 "$python" -m pytest tests/gpu -m cuda -q -p no:cacheprovider \
    --confcutdir=tests/gpu --tb=short --maxfail=20 --durations=5 || status=1
echo "after the tests: $SECONDS s"

if [[ $device == cuda ]]; then
    common=(--device cuda --quiet --max-gib
        "$("$python" -c 'import torch; print(0.8 * torch.cuda.get_device_properties(0).total_memory / 2**30)')")
    length=8192 lengths=4096,16384 layers=512,1024,2048,4096,8192 dtype=bfloat16 heads=32 features=128 repetitions=20
else
    common=(--device cpu --quiet --threads 1)
    length=64 lengths=64,128 layers=64 dtype=float32 heads=2 features=32 repetitions=3
fi

# What a run of the benchmark prints goes to a file, to be shown at the end. One that takes too long is interrupted,
# and then tells what it has.
benchmark() {
    local name=$1 seconds=$2
    shift 2
    timeout -s INT -k 5 "$seconds" "$python" -m posenc_core.benchmark "${common[@]}" --dtype "$dtype" \
        --repetitions "$repetitions" --d-head "$features" --json "${folder:-$scratch}/$name.json" "$@" \
        >"$scratch/$name.txt" 2>"$scratch/$name.log" || {
        echo "the benchmark of $name failed:" >&2
        tail -n 20 "$scratch/$name.log" >&2
        status=1
    }
}
benchmark rotation 40 --what rotation --schemes 'rope,rope(layout=interleaved)' --lengths "$length" --heads "$heads" \
    --implementations all --backward
benchmark layer 30 --what layer --schemes none,rope,alibi,sinusoidal --lengths "$layers" --heads "$heads"
benchmark attention 50 --what attention --schemes alibi --lengths "$lengths" --heads 8 --implementations all --backward
echo "after the benchmark: $SECONDS s"

# A row of a package that is not installed says only that, so one line is enough for all of them.
tables() {
    local absent
    absent=$(sed -n 's/.*skipped: \(.*\) is not installed.*/\1/p' "$scratch"/*.txt | sort -u | paste -s -d, | sed 's/,/, /g')
    if [[ -n $absent ]]; then
        echo "not installed, so not compared with: $absent"
    fi
    for name in layer attention rotation; do
        echo
        grep -v ' is not installed' "$scratch/$name.txt" || true
    done
}
tables | tee "${folder:-$scratch}/tables.txt"
exit "$status"
