"""What each page adds to the schemes' parameters: validated and written to the URL by the same rules as a Spec."""

from __future__ import annotations

from typing import Literal

from posenc_core.spec import Spec, param

SAMPLE = "The for statement runs over a list. The while stateme"  # short enough for readable token labels
MAX_TEXT = 10_000


class SharedView(Spec):
    """Set in the sidebar, the same on all pages."""

    seq_len: int = param(512, "positions shown", ge=8, le=4096, unit="positions",
                         ticks=(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096))  # fmt: skip


class EncodingsView(Spec):
    """The Encodings page."""

    position: int = param(24, "the position that all pictures mark", ge=0, le=4095, unit="position")
    distance: int = param(8, "from there to the second position", ge=0, le=4095, unit="positions")
    quantity: Literal["cos", "sin", "angle"] = param("cos", "what is drawn of a rotation: cos, sin or angle mod 2π")
    waves: int = param(4, "dimensions drawn as waves, spread over the spectrum", ge=1, le=12, unit="waves")
    head: int = param(0, "head, from 0", ge=0, le=255)
    layer: int = param(0, "layer of a hybrid, from 0", ge=0, le=127)


class DecayView(Spec):
    """The Decay page."""

    curve: Literal["score", "weight"] = param("score", "what a bias is drawn as: score, or attention weight exp(score)")
    draws: int = param(
        256, "random pairs of query and key", ge=8, le=512, unit="pairs", ticks=(8, 16, 32, 64, 128, 256, 512)
    )
    projection: Literal["identity", "random", "trained"] = param(
        "random", "what stands between position and score: nothing, random W_q and W_k, those of the toy model"
    )
    head: int = param(0, "head, from 0", ge=0, le=255)
    layer: int = param(0, "layer of a hybrid, from 0", ge=0, le=127)


class AttentionView(Spec):
    """The Attention page."""

    source: Literal["text", "held_out"] = param("text", "your text, or English that the model was not trained on")
    text: str = param(SAMPLE, "the text that the model reads, as UTF-8 bytes", max_length=MAX_TEXT)
    length: int = param(
        256, "tokens of held-out text; the toy models were trained at 128", ge=16, le=1024, unit="tokens",
        ticks=(16, 32, 64, 128, 256, 512, 1024), when=("source", ("held_out",)),
    )  # fmt: skip
    order: Literal["written", "shuffled"] = param("written", "order of the tokens")
    shift: int = param(0, "added to every position", ge=0, le=100_000, unit="positions",
                        ticks=(0, 1, 2, 8, 32, 128, 512, 1000, 10_000, 100_000))  # fmt: skip
    layer: int = param(1, "layer of the large map, from 0", ge=0, le=1)
    head: int = param(0, "head of the large map, from 0", ge=0, le=3)
    query: int = param(-1, "token whose guesses for the next one are shown; -1: the last", ge=-1, le=1023)


class TimingView(Spec):
    """The Timing page."""

    longest: int = param(1024, "longest sequence; shorter ones are measured too", ge=128, le=8192, unit="tokens",
                         ticks=(128, 256, 512, 1024, 2048, 4096, 8192))  # fmt: skip
    dtype: Literal["float32", "bfloat16", "float16"] = param("float32", "number format of the layer")
    device: Literal["cpu", "cuda", "mps"] = param("cpu", "where it runs")
    repetitions: int = param(15, "timed runs of each case", ge=3, le=200, ticks=(3, 5, 9, 15, 25, 51, 101, 200))


VIEWS: dict[str, type[Spec]] = {
    "": Spec,
    "encodings": EncodingsView,
    "decay": DecayView,
    "attention": AttentionView,
    "timing": TimingView,
}
