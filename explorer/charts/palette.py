"""The colour language of the app: lookup tables for maps, fixed roles for lines. Plain data, no plotting library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LIGHT_BACKGROUND = "#ffffff"
DARK_BACKGROUND = "#0e1117"
LIGHT_TEXT = "#31333f"
DARK_TEXT = "#fafafa"

_RGB_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LMS_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def hex_to_rgb(colour: str) -> NDArray[np.uint8]:
    """'#rrggbb' -> [3] uint8."""
    if len(colour) != 7 or colour[0] != "#":
        raise ValueError(f"colour must look like '#rrggbb', got {colour!r}")
    return np.frombuffer(bytes.fromhex(colour[1:]), dtype=np.uint8)


def rgb_to_hex(rgb: Sequence[int] | NDArray[np.uint8]) -> str:
    """[3] integers in 0..255 -> '#rrggbb'."""
    return "#" + "".join(f"{int(channel):02x}" for channel in rgb)


def _linear(rgb: NDArray[np.uint8]) -> NDArray[np.float64]:
    s = np.asarray(rgb, dtype=np.float64) / 255.0
    return np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)


def rgb_to_oklab(rgb: NDArray[np.uint8]) -> NDArray[np.float64]:
    """[..., 3] uint8 sRGB -> [..., 3] OKLab; the first channel is the perceived lightness in 0..1."""
    lab: NDArray[np.float64] = np.cbrt(_linear(rgb) @ _RGB_TO_LMS.T) @ _LMS_TO_LAB.T
    return lab


def oklab_to_rgb(lab: NDArray[np.float64]) -> NDArray[np.uint8]:
    """[..., 3] OKLab -> [..., 3] uint8 sRGB, clipped to the gamut."""
    lms = (lab @ np.linalg.inv(_LMS_TO_LAB).T) ** 3
    linear = np.clip(lms @ np.linalg.inv(_RGB_TO_LMS).T, 0.0, 1.0)
    s = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    rgb: NDArray[np.uint8] = np.rint(np.clip(s, 0.0, 1.0) * 255).astype(np.uint8)
    return rgb


def contrast(a: str, b: str) -> float:
    """WCAG contrast ratio of two '#rrggbb' colours, 1 to 21."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    la, lb = (float(_linear(hex_to_rgb(c)) @ weights) for c in (a, b))
    return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)


def _ramp(anchors: Sequence[str], t: NDArray[np.float64], *, even_lightness: bool = False) -> NDArray[np.uint8]:
    """Colours at t in 0..1 along anchors, straight lines in OKLab: [n, 3]."""
    lab = rgb_to_oklab(np.stack([hex_to_rgb(a) for a in anchors]))
    at = np.linspace(0.0, 1.0, len(anchors))
    if even_lightness:
        at = (lab[:, 0] - lab[0, 0]) / (lab[-1, 0] - lab[0, 0])
    return oklab_to_rgb(np.stack([np.interp(t, at, lab[:, c]) for c in range(3)], axis=-1))


_EVEN = np.linspace(0.0, 1.0, 256)
# Entries 127 and 128 are both the exact centre, so that zero is neutral on whichever side rounding puts it.
_CENTRED = np.concatenate([np.linspace(0.0, 0.5, 128), np.linspace(0.5, 1.0, 128)])

_SEQUENTIAL = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
_DIVERGING_LIGHT = ("#053f73", "#4795c9", "#f3f2f0", "#d9863a", "#6f3000")
_DIVERGING_DARK = ("#8fd0ff", "#2f7bb5", "#20242c", "#b5662a", "#ffb978")
_CYCLIC = ("#e9e6e4", "#5a9ccb", "#232742", "#c4683a", "#e9e6e4")

LUTS: dict[str, dict[str, NDArray[np.uint8]]] = {
    "sequential": dict.fromkeys(("light", "dark"), _ramp(_SEQUENTIAL, _EVEN, even_lightness=True)),
    "diverging": {"light": _ramp(_DIVERGING_LIGHT, _CENTRED), "dark": _ramp(_DIVERGING_DARK, _CENTRED)},
    "cyclic": dict.fromkeys(("light", "dark"), _ramp(_CYCLIC, _EVEN)),
}
for _themes in LUTS.values():
    for _table in _themes.values():
        _table.setflags(write=False)

PALETTES: tuple[str, ...] = tuple(LUTS)


def lut(palette: str, *, dark: bool = False) -> NDArray[np.uint8]:
    """The lookup table of a palette: [256, 3] uint8, read-only."""
    if palette not in LUTS:
        raise ValueError(f"palette must be one of {', '.join(PALETTES)}, got {palette!r}")
    return LUTS[palette]["dark" if dark else "light"]


# Okabe-Ito, as published, for fills next to a label. Several of them vanish as a thin line on one of the backgrounds.
OKABE_ITO: tuple[str, ...] = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7",
)  # fmt: skip

# The same hues with the lightness moved until a line has 3:1 on both backgrounds.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#737373", "#bb8000", "#2f93c5", "#009269", "#8b8300", "#0072b2", "#d55e00", "#c370a0",
)  # fmt: skip
CATEGORICAL: tuple[str, ...] = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, YELLOW, BLACK)

SCHEME_COLOURS: dict[str, str] = {
    "none": BLACK,
    "integer": YELLOW,
    "sinusoidal": SKY,
    "learned": PURPLE,
    "rope": BLUE,
    "alibi": VERMILLION,
    "hybrid": GREEN,
}
HEAD_COLOURS: tuple[str, ...] = CATEGORICAL
POSITION_COLOUR = VERMILLION
POSITION_B_COLOUR = BLUE
TRAINING_LENGTH_COLOUR = PURPLE

_PAIRS = ("#2f62d8", "#a04fc4", "#cf4f6d", "#c27612")


def pair_colours(n: int) -> list[str]:
    """n colours for rotation pairs, from the highest frequency (blue) to the lowest (amber)."""
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return [rgb_to_hex(rgb) for rgb in _ramp(_PAIRS, np.linspace(0.0, 1.0, n) if n > 1 else np.zeros(1))]
