"""Strangers' text inside Markdown: it is shown as it is and never becomes markup."""

from __future__ import annotations

import re


def plain(text: str) -> str:
    """Text on one line in which Markdown's signs are only signs, and no link, address or icon is made of bare words.

    Links and icons are found after escapes are gone, so an invisible joiner breaks them. Halves of surrogate pairs,
    which no page can hold, become the sign for an unknown character.
    """
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    text = re.sub(r"([\\`*_\[\]<>$#|~:!])", r"\\\1", re.sub(r"\s*[\r\n\x0b\x0c\x85\u2028\u2029]\s*", " ", text))
    return re.sub(r"(:(?=\S)|@(?=\S)|\bwww(?=\.))", "\\1\u2060", text)
