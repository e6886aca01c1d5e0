import ast
import subprocess
import sys

import pytest
from support import ROOT

import posenc_core

APP = ("streamlit", "altair", "pandas", "explorer")
FILES = sorted((ROOT / "posenc_core").rglob("*.py"))


def imported(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):  # what only a type checker reads is no import
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_importing_the_core_loads_nothing_of_the_app():
    code = f"import posenc_core, sys; print([m for m in {APP!r} if m in sys.modules])"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (made.returncode, made.stdout.strip()) == (0, "[]"), made.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_of_the_core_imports_the_app(path):
    assert {n.partition(".")[0] for n in imported(path)}.isdisjoint(APP)


RANK = {"spec": 0, "rotary": 1, "frequencies": 1, "schemes": 2, "linear_bias": 2, "attention": 3, "model": 4,
        "tasks": 4, "analysis": 5, "train": 6}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downward(path):
    module = path.relative_to(ROOT / "posenc_core").with_suffix("").parts[0]
    if module in RANK:
        used = {n.split(".")[1] for n in imported(path) if n.startswith("posenc_core.")}
        assert {m for m in used if m not in RANK or RANK[m] > RANK[module]} == set()


def test_the_public_names_exist():
    wanted = {"SCHEMES", "SpecError", "alibi_attention", "alibi_slopes", "apply_rotary", "apply_rotary_qk", "attention",
              "build", "parse_query", "parse_spec", "rope_frequencies"}  # fmt: skip
    assert wanted <= set(posenc_core.__all__)
    assert all(hasattr(posenc_core, n) for n in posenc_core.__all__)
