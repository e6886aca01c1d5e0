"""Speed of the app beside its yardsticks, in one run: python tests/speed/app_speed.py [--json FILE]

1. From a key press on a slider to the painted 4096×128 heatmap of the Encodings page, beside the rerun of an empty app
   and beside the same values drawn as one rectangle a cell; steps of the two quick ones alternate.
2. Importing posenc_core and drawing a first chart, beside `import torch, streamlit`, in fresh processes that alternate.
3. The attention page from a cold visit to its first picture.
4. The Extension page opened for 128k and 16M positions beside 16k, and the Config page for 10M positions beside 8k: new
   bases each time, so that nothing but the recorded tables is cached; in turn.

Machines are shared and noisy: read the ratios, not the milliseconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
EMPTY = """
import streamlit as st
value = st.slider("value", 0, 1000, 500, key="value")
st.markdown(f"value is {value}")
"""
RECTANGLES = """
import altair as alt, numpy as np, pandas as pd, streamlit as st
alt.data_transformers.disable_max_rows()
value = st.slider("value", 0, 1000, 500, key="value")
pair, position = np.mgrid[0:128, 0:4096]
angle = position * (10000.0 + value) ** -(pair / 128)
frame = pd.DataFrame({"position": position.ravel(), "pair": pair.ravel(), "cos": np.cos(angle).ravel()})
st.altair_chart(alt.Chart(frame).mark_rect().encode(x="position:O", y="pair:O", color="cos:Q", tooltip="cos:Q"))
st.markdown(f"value is {value}")
"""
FIRST_CHART = """
import torch, posenc_core
from explorer.charts.heatmap import payload, pack
from explorer.charts import maps
spec = posenc_core.parse_spec({"scheme": "rope"})
angles = (posenc_core.rope_frequencies(spec).inv_freq[:, None] * torch.arange(512)).remainder(2 * torch.pi).numpy()
pack(payload([maps.rotation_map(angles, 1, "cos", ())]))
"""


def serve(script: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start an app, wait until it answers; returns the process and the address."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    flags = ["--server.headless", "true", "--server.port", str(port), "--server.fileWatcherType", "none"]
    flags += ["--browser.gatherUsageStats", "false"]
    process = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", script, *flags],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(address + "/_stcore/health", timeout=1)
            return process, address
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{script} did not start")


def step(page: Page, key: str, changed: str, timeout: float = 120_000) -> float:
    """Press an arrow on the slider `key`; milliseconds until the JavaScript expression `changed` has another value."""
    page.locator(f".st-key-{key}").get_by_role("slider").first.focus()
    before = page.evaluate(changed)
    script = """([expression, before]) => new Promise(resolve => {
        const look = () => { let now; try { now = eval(expression) } catch { now = before }
            if (now !== before) requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
            else requestAnimationFrame(look) };
        const pressed = () => { window.pressed = performance.now(); look() };
        document.addEventListener('keydown', pressed, {once: true, capture: true});
    }).then(end => { window.took = end - window.pressed })"""
    page.evaluate(f"args => {{ window.took = null; ({script})(args) }}", [changed, before])
    page.keyboard.press("ArrowRight")
    page.wait_for_function("window.took !== null", timeout=timeout)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.wait_for_timeout(250)
    return float(page.evaluate("window.took"))


# of the first map on the page; found once, since looking for it in every frame would slow down what is measured
HASH = """(() => { if (window.map?.isConnected) return window.map.dataset.painted;
    const large = document.querySelector('[class*=st-key-map_]');
    const seen = large ? [large] : []; while (seen.length) { const root = seen.pop();
    for (const e of root.querySelectorAll('*')) {
        if (e.dataset?.painted) { window.map = e; return e.dataset.painted }
        if (e.shadowRoot) seen.push(e.shadowRoot) } } })()"""
CANVAS = "document.querySelector('[data-testid=stVegaLiteChart] canvas').toDataURL()"
TEXT = "[...document.querySelectorAll('[data-testid=stMarkdown]')].map(e => e.innerText).join()"


def slider_steps(browser: Browser, repetitions: int, rectangles: int) -> dict[str, list[float]]:
    """Milliseconds of each step."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = {"empty": EMPTY, "rectangles": RECTANGLES}
        for name, text in scripts.items():
            Path(folder, f"{name}.py").write_text(text)
        servers = {
            "heatmap": serve("explorer/app.py"), "empty": serve(f"{folder}/empty.py"),
            "rectangles": serve(f"{folder}/rectangles.py"),
        }  # fmt: skip
        try:
            pages = {name: browser.new_page(viewport={"width": 1280, "height": 900}) for name in servers}
            pages["heatmap"].goto(servers["heatmap"][1] + "/encodings?scheme=rope&d_head=256&seq_len=4096&base=10")
            pages["empty"].goto(servers["empty"][1])
            for name in ("heatmap", "empty"):
                pages[name].wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000)
            pages["heatmap"].wait_for_function(HASH, timeout=60_000)
            pages["heatmap"].wait_for_timeout(3000)
            times: dict[str, list[float]] = {"empty": [], "heatmap": [], "rectangles": []}
            for index in range(repetitions + 2):
                pages["empty"].bring_to_front()
                empty = step(pages["empty"], "value", TEXT)
                pages["heatmap"].bring_to_front()
                full = step(pages["heatmap"], "base", HASH)  # every value of the map changes
                if index >= 2:
                    times["empty"].append(empty)
                    times["heatmap"].append(full)
            if rectangles:
                page = pages["rectangles"]
                page.bring_to_front()
                page.goto(servers["rectangles"][1])
                page.wait_for_selector("[data-testid=stVegaLiteChart] canvas", timeout=240_000)
                page.wait_for_timeout(30_000)
                for _ in range(rectangles):
                    times["rectangles"].append(step(page, "value", CANVAS, timeout=240_000))
            return times
        finally:
            for process, _ in servers.values():
                process.terminate()


def alternate(
    first: Callable[[], None], second: Callable[[], None], repetitions: int
) -> tuple[list[float], list[float]]:
    """Seconds of two things done in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repetitions):
        for what, into in zip((first, second), times, strict=True):
            start = time.perf_counter()
            what()
            into.append(time.perf_counter() - start)
    return times


def run(code: str) -> None:
    """A fresh interpreter."""
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def first_attention_picture(browser: Browser) -> float:
    """Seconds from opening the attention page of a server that nobody visited to its first map."""
    process, address = serve("explorer/app.py")
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        start = time.perf_counter()
        page.goto(address + "/attention")
        page.wait_for_function(HASH, timeout=120_000)
        return time.perf_counter() - start
    finally:
        process.terminate()


def opening(browser: Browser, repetitions: int) -> dict[str, list[float]]:
    """Seconds from opening a link on a warm server to the end of its run."""
    config = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}

    def link(name: str, base: int) -> str:
        page, length = name.split()
        positions = int(length.replace(",", ""))
        if page == "config":
            text = json.dumps(config | {"rope_theta": base, "max_position_embeddings": positions})
            return f"/config?{urlencode({'config': text})}"
        return f"/extension?scheme=rope&d_head=128&base={base}&trained_length=8192&target_length={positions}"

    names = ("extension 16,384", "extension 131,072", "extension 16,777,216", "config 8,192", "config 10,000,000")
    times: dict[str, list[float]] = {name: [] for name in names}
    process, address = serve("explorer/app.py")
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for index in range(repetitions + 1):
            for number, name in enumerate(names):
                start = time.perf_counter()
                page.goto(address + link(name, 10_000 + 17 * (index * len(names) + number)))
                page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=120_000)
                page.wait_for_selector("[data-testid=stMetric]")
                if index:
                    times[name].append(time.perf_counter() - start)
        return times
    finally:
        process.terminate()


def main() -> int:
    """Measure, print a table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--rectangles", type=int, default=2, help="steps of the slow chart, half a minute each")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    path = next((p for p in ("/usr/bin/chromium", shutil.which("google-chrome")) if p and Path(p).exists()), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        steps = {k: v for k, v in slider_steps(browser, args.repetitions, args.rectangles).items() if v}
        attention = first_attention_picture(browser)
        opened = opening(browser, max(1, args.repetitions // 3))
        browser.close()
    yardstick, core = alternate(lambda: run("import torch, streamlit"), lambda: run(FIRST_CHART), 5)
    medians = {name: statistics.median(values) for name, values in steps.items()}
    rows = [
        (f"slider step, {name}", f"{value:,.0f} ms", f"{value / medians['empty']:.2f} × empty")
        for name, value in medians.items()
    ]
    ratio = statistics.median(core) / statistics.median(yardstick)
    rows += [
        ("import torch, streamlit", f"{statistics.median(yardstick):.2f} s", ""),
        ("import posenc_core, first chart", f"{statistics.median(core):.2f} s", f"{ratio:.2f} × that"),
        ("attention page, cold", f"{attention:.2f} s", "to its first map"),
    ]
    for name, seconds in opened.items():
        least = opened["config 8,192" if name.startswith("config") else "extension 16,384"]
        middle = statistics.median(seconds)
        rows.append((f"opening {name}", f"{middle:.2f} s", f"{middle / statistics.median(least):.2f} × the shortest"))
    for row in rows:
        print("{:<36}{:>14}  {}".format(*row))
    if args.json:
        record = {
            "machine": platform.processor() or platform.machine(), "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d"), "slider_step_ms": steps, "torch_streamlit_s": yardstick,
            "core_first_chart_s": core, "attention_cold_s": attention, "opening_s": opened,
        }  # fmt: skip
        args.json.write_text(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
