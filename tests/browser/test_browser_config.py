"""The Config page in a real browser: pasting, picking, uploading, copying, downloading, and where its links lead."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from posenc_core.schemes.rope import RopeSpec

GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "num_hidden_layers": 12, "max_position_embeddings": 131_072, "rope_theta": 1e6,
    "rope_local_base_freq": 1e4, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    "sliding_window_pattern": 6,
}  # fmt: skip
SIDEWAYS = """() => [document.documentElement, document.querySelector("[data-testid=stMain]")]
  .some(e => e.scrollWidth > e.clientWidth + 1)"""


def answer(app: Any) -> str:
    text: str = app.page.locator("[data-testid=stMain] h5").first.inner_text()
    return text


def paste(app: Any, text: str) -> Any:
    box = app.widget("config").get_by_role("textbox")
    box.fill(text)
    box.press("Control+Enter")
    return app.settle()


def wait_for_answer(app: Any, part: str) -> None:
    app.wait_for("t => (document.querySelector('[data-testid=stMain] h5')?.innerText ?? '').includes(t)", part)


def test_a_pasted_config_is_answered_and_its_link_opens_the_same(app: Any) -> None:
    app.open("config")
    assert "29 pairs kept, 6 ramped, 29 divided" in answer(app)
    paste(app, json.dumps(GEMMA))
    wait_for_answer(app, "10 × sliding_attention")
    assert "2 × full_attention" in answer(app)
    app.wait_for("() => new URL(location.href).searchParams.has('config')")
    assert json.loads(app.query()["config"]) == GEMMA
    app.page.reload()
    app.settle()
    wait_for_answer(app, "10 × sliding_attention")
    assert app.page.locator("[data-testid=stVegaLiteChart]").count() == 2


def test_a_picked_model_and_an_uploaded_file_fill_the_box(app: Any, tmp_path: Path) -> None:
    app.open("config")
    models = app.widget("_model").get_by_role("combobox")
    models.fill("Pythia")  # the list is drawn as far as it is scrolled
    app.page.get_by_role("option", name="Pythia 6.9B", exact=True).click()
    wait_for_answer(app, "32 of 128 features")
    assert "gpt_neox" in app.shown("config")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(GEMMA | {"vocab_size": 262_144, "pad": "x" * 30_000}))
    app.page.locator(".st-key-_upload input[type=file]").set_input_files(file)
    wait_for_answer(app, "10 × sliding_attention")
    assert "pad" not in app.shown("config")
    broken = tmp_path / "broken.json"
    broken.write_text("[1, 2")
    app.page.locator(".st-key-_upload input[type=file]").set_input_files(broken)
    app.page.locator("[data-testid=stAlert]", has_text="cannot be read").wait_for()
    wait_for_answer(app, "10 × sliding_attention")  # what was there stays


def test_what_cannot_be_read_is_told_as_it_stands(app: Any) -> None:
    app.open("config")
    paste(app, json.dumps({"model_type": "<img src=x onerror=alert(1)>", "rope_theta": "**8** [x](https://e.com) $y$"}))
    told = app.page.locator("[data-testid=stAlert]", has_text="cannot be read")
    told.wait_for()
    assert "**8** [x](https://e.com) $y$" in told.inner_text().replace("\u2060", "")
    assert told.locator("li").locator("b, strong, em, code, a, img, .katex").count() == 0
    assert "29 pairs kept" in answer(app)


def test_numbers_are_copied_and_tables_downloaded(visit: Any) -> None:
    app = visit(permissions=["clipboard-read", "clipboard-write"]).open("config?digits=full&target=npz")
    spec = RopeSpec(d_head=128, base=5e5, scaling="llama3", factor=8.0)
    block = app.page.locator("[data-testid=stCode]").first
    block.hover()
    block.get_by_role("button").click()
    copied = app.page.evaluate("() => navigator.clipboard.readText()")
    assert json.loads(copied) == spec.inv_freq().tolist()
    with app.page.expect_download() as download:
        app.page.get_by_role("button", name="Download NPZ").click()
    made = np.load(io.BytesIO(Path(download.value.path()).read_bytes()), allow_pickle=False)
    np.testing.assert_array_equal(made["inv_freq"], spec.inv_freq().numpy())


def test_the_model_goes_to_the_sidebar(app: Any) -> None:
    app.open("config")
    link = app.page.locator("[data-testid=stPageLink] a", has_text="in the sidebar")
    link.click()
    app.wait_for("() => location.pathname === '/encodings'")
    app.wait_for_query(scheme="rope", d_head="128", base="500000", scaling="llama3", factor="8", go="")
    assert app.painted("encoding_0")


def test_a_symptom_is_found_and_its_picture_opens(app: Any) -> None:
    app.open("config")
    everything = app.page.locator("[data-testid=stExpander]").count()
    box = app.widget("symptom").get_by_role("textbox")
    box.fill("12 heads alibi")
    box.press("Enter")
    app.wait_for_query(symptom="12 heads alibi")
    entry = app.page.locator("[data-testid=stExpander]", has_text="An ALiBi port with 12")
    entry.wait_for()
    app.wait_for("n => document.querySelectorAll('[data-testid=stExpander]').length < n", everything)
    entry.locator("summary").click()
    app.page.wait_for_timeout(500)  # it slides open
    entry.locator("[data-testid=stPageLink] a").click()
    app.wait_for("() => location.pathname === '/encodings'")
    app.wait_for_query(scheme="alibi", n_heads="12", go="")
    assert app.page.locator("[data-testid=stAlert]").count() == 0
    app.page.go_back()
    app.wait_for("() => location.pathname === '/config'")


def test_nothing_is_too_wide_for_a_phone(visit: Any) -> None:
    app = visit(viewport={"width": 390, "height": 844}, color_scheme="dark").open("config?target=pytorch&digits=full")
    assert "29 pairs kept" in answer(app)
    assert not app.page.evaluate(SIDEWAYS)
