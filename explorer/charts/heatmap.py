"""The app's only heatmap, as data: validation, the canvas payload, and an exportable Altair twin."""

from __future__ import annotations

import base64
import io
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from explorer.charts.palette import (
    DARK_BACKGROUND,
    DARK_TEXT,
    LIGHT_BACKGROUND,
    LIGHT_TEXT,
    PALETTES,
    hex_to_rgb,
    lut,
    rgb_to_hex,
)

UNDEFINED = 65535
_STEPS = 65534
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Axis:
    """Cell i lies at start + step * i; labels, one a cell, replace the numbers where there is room."""

    title: str
    unit: str = ""
    start: float = 0
    step: float = 1
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.start):
            raise ValueError(f"axis start must be finite, got {self.start!r}")
        if not (math.isfinite(self.step) and self.step > 0):
            raise ValueError(f"axis step must be a positive number, got {self.step!r}")

    @property
    def full_title(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def at(self, cell: int) -> float:
        """The coordinate of a cell's centre."""
        return self.start + self.step * cell

    def extent(self, n: int) -> tuple[float, float]:
        """The outer edges of n cells, in axis units."""
        return self.at(0) - self.step / 2, self.at(n - 1) + self.step / 2


@dataclass(frozen=True)
class Guide:
    """A line across the plot at a value of one axis."""

    axis: Literal["x", "y"]
    value: float
    label: str
    colour: str

    def __post_init__(self) -> None:
        if self.axis not in ("x", "y"):
            raise ValueError(f"guide axis must be 'x' or 'y', got {self.axis!r}")
        if not math.isfinite(self.value):
            raise ValueError(f"guide value must be finite, got {self.value!r}")
        hex_to_rgb(self.colour)


@dataclass(frozen=True, eq=False)
class Heatmap:
    """values [rows, cols], row 0 at the top; a cell that is not finite is undefined and drawn hatched.

    Values outside domain take the colour of its nearer end; with the cyclic palette they wrap around.
    """

    values: NDArray[np.floating[Any]]
    x: Axis
    y: Axis
    value_title: str
    value_unit: str = ""
    palette: str = "sequential"
    domain: tuple[float, float] = (0.0, 1.0)
    guides: tuple[Guide, ...] = ()
    title: str = ""
    undefined_label: str = "undefined"

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        object.__setattr__(self, "values", values)
        if values.ndim != 2:
            raise ValueError(f"values must have 2 dimensions [rows, cols], got shape {values.shape}")
        if values.size == 0:
            raise ValueError(f"values must not be empty, got shape {values.shape}")
        if self.palette not in PALETTES:
            raise ValueError(f"palette must be one of {', '.join(PALETTES)}, got {self.palette!r}")
        lo, hi = self.domain
        if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
            raise ValueError(f"domain must be two finite numbers, lower first, got {self.domain!r}")
        if self.palette == "diverging" and not math.isclose(-lo, hi, rel_tol=1e-9):
            raise ValueError(f"domain of a diverging palette must be symmetric about 0, got {self.domain!r}")
        for name, axis, n in (("x", self.x, self.cols), ("y", self.y, self.rows)):
            if axis.labels is not None and len(axis.labels) != n:
                raise ValueError(f"{name} axis needs {n} labels, got {len(axis.labels)}")

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def cols(self) -> int:
        return int(self.values.shape[1])

    @property
    def full_value_title(self) -> str:
        return f"{self.value_title} ({self.value_unit})" if self.value_unit else self.value_title

    def data_range(self) -> tuple[float, float]:
        """Smallest and largest finite value; (0, 0) when nothing is defined."""
        lo, hi = float(self.values.min()), float(self.values.max())
        if math.isfinite(lo) and math.isfinite(hi):
            return lo, hi
        finite = self.values[np.isfinite(self.values)]
        return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


# ---------------------------------------------------------------- canvas payload


def quantise(values: NDArray[np.floating[Any]], lo: float, hi: float) -> NDArray[np.uint16]:
    """[...] floats in lo..hi -> [...] uint16 in 0..65534; not finite -> 65535."""
    # Halved first, so that a range wider than the largest float does not overflow.
    span = hi / 2 - lo / 2
    if span > 0:
        with np.errstate(invalid="ignore"):
            scaled = values * 0.5
            scaled -= lo / 2
            scaled /= span
            np.clip(scaled, 0.0, 1.0, out=scaled)
            scaled *= _STEPS
            np.rint(scaled, out=scaled)
    else:
        scaled = np.zeros(values.shape)
    if not (math.isfinite(values.min()) and math.isfinite(values.max())):
        scaled[~np.isfinite(values)] = UNDEFINED
    return scaled.astype("<u2")


def dequantise(codes: NDArray[np.uint16], lo: float, hi: float) -> NDArray[np.float64]:
    """The inverse, within (hi - lo) / 65534 / 2; 65535 -> NaN."""
    u = codes.astype(np.float64) / _STEPS
    return np.where(codes == UNDEFINED, np.nan, lo * (1 - u) + hi * u)


def value_ticks(heatmap: Heatmap) -> list[tuple[float, str]]:
    """At most seven round colour bar ticks inside the domain, with their labels."""
    lo, hi = heatmap.domain
    if heatmap.palette == "cyclic" and math.isclose(hi - lo, 2 * math.pi, rel_tol=1e-6):
        first = math.ceil(lo / (math.pi / 2) - 1e-6)
        names = {0: "0", 1: "π/2", 2: "π", 3: "3π/2", 4: "2π", -1: "-π/2", -2: "-π"}
        ticks = [(k * math.pi / 2, names.get(k, f"{k / 2:g}π")) for k in range(first, first + 5)]
        return [t for t in ticks if t[0] <= hi + 1e-6]
    raw = (hi - lo) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = math.ceil(lo / step - 1e-9)
    count = math.floor(hi / step + 1e-9) - first + 1
    return [(k * step, f"{k * step:.6g}") for k in range(first, first + count)]


def _decimals(lo: float, hi: float) -> int | None:
    """Decimals that 65535 levels between lo and hi can support; None when the value is exact."""
    return math.floor(-math.log10((hi - lo) / _STEPS)) if hi > lo else None


def _axis(axis: Axis) -> dict[str, Any]:
    return {
        "title": axis.title,
        "unit": axis.unit,
        "start": axis.start,
        "step": axis.step,
        "labels": list(axis.labels) if axis.labels is not None else None,
    }


def _panel(heatmap: Heatmap, exact_cells: int) -> dict[str, Any]:
    lo, hi = heatmap.data_range()
    values = heatmap.values
    exact = values.size <= exact_cells and max(abs(lo), abs(hi)) <= _FLOAT32_MAX
    if exact:
        data = np.where(np.isfinite(values), values, np.nan).astype("<f4").tobytes()
    else:
        data = quantise(values, lo, hi).tobytes()
    return {
        "rows": heatmap.rows,
        "cols": heatmap.cols,
        "encoding": "f32" if exact else "u16",
        "lo": lo,
        "hi": hi,
        "decimals": None if exact else _decimals(lo, hi),
        "data": data,
        "undefined": bool(not np.isfinite(values).all()),
        "x": _axis(heatmap.x),
        "y": _axis(heatmap.y),
        "value": {
            "title": heatmap.value_title,
            "unit": heatmap.value_unit,
            "domain": [float(d) for d in heatmap.domain],
            "ticks": value_ticks(heatmap),
        },
        "palette": heatmap.palette,
        "guides": [{"axis": g.axis, "value": g.value, "label": g.label, "colour": g.colour} for g in heatmap.guides],
        "title": heatmap.title,
        "undefinedLabel": heatmap.undefined_label,
    }


def payload(
    panels: Sequence[Heatmap],
    *,
    alt: str = "",
    height: int = 360,
    columns: int | None = None,
    selected: int | None = None,
    clickable: bool = False,
    exact_cells: int = 65536,
) -> dict[str, Any]:
    """Everything the canvas needs, arrays as bytes under "data" and "luts".

    A panel of at most exact_cells travels as float32; a larger one as uint16 over its own range, half the bytes and
    within (hi - lo) / 65534 / 2 of the value. "version" is a hash of the whole content.
    """
    if not panels:
        raise ValueError("panels must hold at least one heatmap, got none")
    if selected is not None and not 0 <= selected < len(panels):
        raise ValueError(f"selected must be a panel index in 0..{len(panels) - 1}, got {selected}")
    if columns is not None and columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    if height < 80:
        raise ValueError(f"height must be at least 80 px, got {height}")
    used = sorted({p.palette for p in panels})
    content: dict[str, Any] = {
        "panels": [_panel(p, exact_cells) for p in panels],
        "luts": {name: {t: lut(name, dark=t == "dark").tobytes() for t in ("light", "dark")} for name in used},
        "alt": alt,
        "height": height,
        "columns": columns,
        "selected": selected,
        "clickable": clickable,
    }
    content["version"] = f"{zlib.crc32(pack(content)):08x}"
    return content


def pack(content: Mapping[str, Any]) -> bytes:
    """One byte string: uint32 header length, JSON header, blobs; every part starts on a multiple of 4."""
    blobs: list[bytes] = []
    size = 0

    def strip(node: Any) -> Any:
        nonlocal size
        if isinstance(node, bytes):
            place = {"$offset": size, "$length": len(node)}
            blobs.append(node + b"\0" * (-len(node) % 4))
            size += len(blobs[-1])
            return place
        if isinstance(node, Mapping):
            return {key: strip(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [strip(value) for value in node]
        return node

    header = json.dumps(strip(content), allow_nan=False).encode()
    header += b" " * (-len(header) % 4)
    return b"".join([len(header).to_bytes(4, "little"), header, *blobs])


# ---------------------------------------------------------------- pictures and files


def colour_index(heatmap: Heatmap) -> NDArray[np.int16]:
    """[rows, cols] index into the palette's 256 colours; -1 where undefined."""
    lo, hi = heatmap.domain
    defined = np.isfinite(heatmap.values)
    u = (np.where(defined, heatmap.values, lo) - lo) / (hi - lo)
    if heatmap.palette == "cyclic":
        u = u - np.floor(u)
    index = np.clip(np.floor(np.clip(u, 0.0, 1.0) * 256), 0, 255)
    return np.where(defined, index, -1).astype(np.int16)


def _bin_means(a: NDArray[np.float64], n: int, axis: int) -> NDArray[np.float64]:
    """Averages a down to n entries along an axis; unchanged when it is no longer than n."""
    size = a.shape[axis]
    if size <= n:
        return a
    edges = np.arange(n) * size // n
    counts = np.diff(np.append(edges, size))
    shape = [1] * a.ndim
    shape[axis] = n
    return np.add.reduceat(a, edges, axis=axis) / counts.reshape(shape)


def raster(heatmap: Heatmap, width: int, height: int, *, dark: bool = False) -> NDArray[np.uint8]:
    """RGBA [min(rows, height), min(cols, width), 4]; cells smaller than a pixel average their colours."""
    index = colour_index(heatmap)
    table = np.vstack([lut(heatmap.palette, dark=dark), np.zeros((1, 3), np.uint8)])
    alpha = (index >= 0).astype(np.uint8)
    rgba = np.concatenate([table[index], alpha[..., None] * np.uint8(255)], axis=-1)
    if heatmap.rows <= height and heatmap.cols <= width:
        return rgba
    premultiplied = rgba.astype(np.float64)
    means = _bin_means(_bin_means(premultiplied, height, 0), width, 1)
    share = np.maximum(means[..., 3:] / 255, 1e-9)
    means[..., :3] /= share
    return np.rint(np.clip(means, 0, 255)).astype(np.uint8)


def _data_uri(rgba: NDArray[np.uint8]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(rgba).save(buffer, format="PNG", compress_level=6)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _hatch(width: int, height: int, dark: bool) -> NDArray[np.uint8]:
    """Diagonal stripes, RGBA [height, width, 4]."""
    stripe = (np.add.outer(np.arange(height), np.arange(width)) % 8) < 2
    colours = ([32, 36, 44], [120, 124, 132]) if dark else ([240, 241, 243], [150, 153, 160])
    rgb = np.where(stripe[..., None], np.array(colours[1]), np.array(colours[0])).astype(np.uint8)
    return np.concatenate([rgb, np.full((height, width, 1), 255, np.uint8)], axis=-1)


def _guide_rows(guides: Sequence[Guide], axis: str, pixel: Mapping[int, float]) -> dict[int, int]:
    """Guide index -> row, so that labels of neighbouring guides do not overlap."""
    rows: dict[int, int] = {}
    taken: list[tuple[int, float, float]] = []
    for i, guide in enumerate(guides):
        if guide.axis != axis:
            continue
        start, end = (pixel[i], pixel[i] + 6.5 * len(guide.label) + 10) if axis == "x" else (pixel[i], pixel[i] + 14)
        row = 0
        while any(r == row and start < e and s < end for r, s, e in taken):
            row += 1
        taken.append((row, start, end))
        rows[i] = row
    return rows


def to_altair(heatmap: Heatmap, width: int = 640, height: int = 360, *, dark: bool = False) -> alt.LayerChart:
    """The same picture as a chart for export: a raster image behind real axes, legend and guides."""
    background, text = (DARK_BACKGROUND, DARK_TEXT) if dark else (LIGHT_BACKGROUND, LIGHT_TEXT)
    x0, x1 = heatmap.x.extent(heatmap.cols)
    y0, y1 = heatmap.y.extent(heatmap.rows)

    def axis(a: Axis, n: int, pixels: int, angle: float) -> alt.Axis:
        common: dict[str, Any] = {"title": a.full_title, "grid": False}
        if a.labels is None or pixels / n < 9:
            return alt.Axis(**common)
        shown: dict[str, Any] = {
            "values": [a.at(i) for i in range(n)],
            "labelOverlap": False,
            "labelAngle": angle,
            "labelLimit": 120,
        }
        expr = f"{json.dumps(list(a.labels))}[round((datum.value - {a.start!r}) / {a.step!r})]"
        return alt.Axis(**common, **shown, labelExpr=expr)

    longest = max((len(label) for label in heatmap.x.labels or ()), default=0)
    angle = 0.0 if longest * 6.5 < width / heatmap.cols else -90.0
    x_enc = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[x0, x1], nice=False, zero=False),
        axis=axis(heatmap.x, heatmap.cols, width, angle),
    )
    y_enc = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=[y0, y1], nice=False, zero=False, reverse=True),
        axis=axis(heatmap.y, heatmap.rows, height, 0.0),
    )

    images = [_data_uri(raster(heatmap, 2 * width, 2 * height, dark=dark))]
    undefined = not np.isfinite(heatmap.values).all()
    if undefined:
        images.insert(0, _data_uri(_hatch(width, height, dark)))
    layers: list[alt.Chart] = []
    for uri in images:
        box = pd.DataFrame({"x": [x0], "x2": [x1], "y": [y0], "y2": [y1], "url": [uri]})
        layers.append(
            alt.Chart(box)
            .mark_image(aspect=False, smooth=False)
            .encode(x=x_enc, x2="x2", y=y_enc, y2="y2", url="url:N")
        )

    table = lut(heatmap.palette, dark=dark)
    colours = [rgb_to_hex(table[i]) for i in np.rint(np.linspace(0, 255, 33)).astype(int)]
    ticks = value_ticks(heatmap)
    names = json.dumps([name for _, name in ticks])
    places = json.dumps([value for value, _ in ticks])
    nearest = f"{names}[indexof({places}, datum.value)]"
    legend = alt.Legend(
        title=heatmap.full_value_title,
        values=[value for value, _ in ticks],
        labelExpr=f"{nearest} || datum.label",
        gradientLength=max(60, min(height - 60, 300)),
        titleLimit=180,
    )
    layers.append(
        alt.Chart(pd.DataFrame({"x": [x0, x1], "y": [y0, y1], "v": list(heatmap.domain)}))
        .mark_point(size=0, opacity=0)
        .encode(
            x=x_enc,
            y=y_enc,
            color=alt.Color(
                "v:Q", scale=alt.Scale(domain=list(heatmap.domain), range=colours, nice=False), legend=legend
            ),
        )
    )

    pixel = {
        i: (g.value - x0) / (x1 - x0) * width if g.axis == "x" else (g.value - y0) / (y1 - y0) * height
        for i, g in enumerate(heatmap.guides)
    }
    rows = {**_guide_rows(heatmap.guides, "x", pixel), **_guide_rows(heatmap.guides, "y", pixel)}
    lines: list[alt.Chart] = []
    captions: list[alt.Chart] = []
    for i, guide in enumerate(heatmap.guides):
        lo, hi = (x0, x1) if guide.axis == "x" else (y0, y1)
        if not lo <= guide.value <= hi:
            continue
        data = alt.Chart(pd.DataFrame({guide.axis: [guide.value], "label": [guide.label]}))
        size = width if guide.axis == "x" else height
        if guide.axis == "x":
            line: dict[str, Any] = {"x": x_enc}
            flip = pixel[i] > size - 6.5 * len(guide.label) - 8
            place: dict[str, Any] = {
                "align": "right" if flip else "left",
                "dx": -5 if flip else 5,
                "y": 10 + 14 * rows[i],
            }
        else:
            line = {"y": y_enc}
            below = pixel[i] < 16
            place = {"align": "right", "x": width - 6 - 120 * rows[i], "dy": 9 if below else -8}
        for colour, thick in ((background, 3.5), (guide.colour, 1.5)):
            lines.append(data.mark_rule(color=colour, strokeWidth=thick).encode(**line))
        halo = {"fill": background, "stroke": background, "strokeWidth": 4, "strokeJoin": "round"}
        for style in (halo, {"fill": text}):
            captions.append(
                data.mark_text(fontSize=11, baseline="middle", **place, **style).encode(**line, text="label:N")
            )

    chart = alt.layer(*layers, *lines, *captions).properties(width=width, height=height, background=background)
    note: dict[str, Any] = (
        {"subtitle": [f"hatched: {heatmap.undefined_label}"], "subtitleColor": text} if undefined else {}
    )
    if heatmap.title or note:
        chart = chart.properties(title=alt.TitleParams(text=heatmap.title, anchor="start", color=text, **note))
    line_colour = "#8a8f99"
    styled: alt.LayerChart = (
        chart.configure_axis(
            labelColor=text,
            titleColor=text,
            tickColor=line_colour,
            domainColor=line_colour,
            titleLimit=max(width, height),
        )
        .configure_legend(labelColor=text, titleColor=text)
        .configure_view(stroke=line_colour)
    )
    return styled


def to_csv(heatmap: Heatmap) -> str:
    """Long form, x,y,value with full precision; an undefined value is empty. Labels add x_label, y_label."""
    xs = [heatmap.x.at(i) for i in range(heatmap.cols)]
    ys = [heatmap.y.at(i) for i in range(heatmap.rows)]
    flat = heatmap.values.ravel()
    frame = pd.DataFrame(
        {
            "x": np.tile(np.asarray(xs), heatmap.rows),
            "y": np.repeat(np.asarray(ys), heatmap.cols),
            "value": np.where(np.isfinite(flat), flat, np.nan),
        }
    )
    if heatmap.x.labels is not None:
        frame["x_label"] = np.tile(np.asarray(heatmap.x.labels, dtype=object), heatmap.rows)
    if heatmap.y.labels is not None:
        frame["y_label"] = np.repeat(np.asarray(heatmap.y.labels, dtype=object), heatmap.cols)
    return str(frame.to_csv(index=False, lineterminator="\n"))


def to_svg(heatmap: Heatmap, width: int = 640, height: int = 360, *, dark: bool = False) -> str:
    """SVG text of the Altair twin."""
    import vl_convert  # costs half a second and memory that only an export needs

    return str(vl_convert.vegalite_to_svg(to_altair(heatmap, width, height, dark=dark).to_dict()))


def to_png(heatmap: Heatmap, width: int = 640, height: int = 360, *, dark: bool = False, scale: float = 2.0) -> bytes:
    """PNG bytes of the Altair twin."""
    import vl_convert

    spec = to_altair(heatmap, width, height, dark=dark).to_dict()
    return bytes(vl_convert.vegalite_to_png(spec, scale=scale))
