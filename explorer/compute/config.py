"""What the Config page reads and writes, kept by the text of the config."""

from __future__ import annotations

import streamlit as st

from explorer.compute.common import HASHES
from posenc_core import ModelEncoding, Problem, Spec, SpecError, export, read_hf_config
from posenc_core.hf_config import parse_config_text, positional_fields

MAX_UPLOAD = 2**20  # bytes


@st.cache_resource(max_entries=32, show_spinner=False)
def read(text: str) -> ModelEncoding | tuple[Problem, ...]:
    """The encoding that a config.json's text gives, or everything that is wrong with it."""
    try:
        return read_hf_config(parse_config_text(text))
    except SpecError as error:
        return error.problems


def reduced(data: bytes) -> str:
    """The positional fields of an uploaded config.json as text. Raises SpecError."""
    if len(data) > MAX_UPLOAD:
        raise SpecError([Problem("file", f"{len(data):,} bytes", f"at most {MAX_UPLOAD:,} bytes")])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError([Problem("file", data[:20], "a config.json, which is text in UTF-8")]) from None
    return export.json_text(positional_fields(parse_config_text(text)))


@st.cache_resource(max_entries=16, show_spinner=False)
def exported_config(text: str, target: str) -> export.Export:
    """The encoding of a legal config's text in a target's words."""
    made = read(text)
    assert isinstance(made, ModelEncoding)
    return export.EXPORTS[target](made)


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=HASHES)
def exported_scheme(spec: Spec, target: str) -> export.Export:
    """A scheme in a target's words."""
    return export.EXPORTS[target](spec)
