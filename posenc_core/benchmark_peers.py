"""How other libraries rotate q and k and attend, called as their users call them. None is needed by this one.

An adapter gives an Operation: a function, and how it wants q, k and v to lie in memory. A library that cannot do what
the scheme asks for, or cannot be imported, is a Skip with a sentence.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc_core.schemes.rope import RopeSpec


class Skip(Exception):
    """A case that cannot be measured, and why."""


class Given(NamedTuple):
    """What a rotation is made from: cos, sin [L, R/2] float32 on the device; inv_freq [R/2] float64; d_head = D."""

    spec: RopeSpec
    cos: Tensor
    sin: Tensor
    inv_freq: Tensor
    d_head: int
    dtype: torch.dtype

    @property
    def length(self) -> int:
        """L, the number of positions."""
        return self.cos.shape[0]

    @property
    def scaled(self) -> bool:
        """Whether cos and sin carry an attention factor: cos(0) is not 1."""
        return bool(self.cos[0, 0] != 1)


def heads_first(x: Tensor) -> Tensor:
    """[B, H, L, D] as it is."""
    return x


def tokens_first(x: Tensor) -> Tensor:
    """[B, H, L, D] as [B, L, H, D] in memory, and back."""
    return x.transpose(1, 2).contiguous()


def as_projected(x: Tensor) -> Tensor:
    """[B, H, L, D] as a view of [B, L, H, D], as it comes out of a model's projection."""
    return tokens_first(x).transpose(1, 2)


class Operation(NamedTuple):
    """A function of q and k, or of q, k and v, that returns a tuple: both rotated, or attention's output alone.

    prepare turns q, k, v [B, H, L, D] into what the function takes, finish turns its results (and gradients of what it
    takes) into [B, H, L, D]. overwrites: the results lie where q and k lay, and gradients where the given ones lay.
    """

    function: Callable[..., tuple[Tensor, ...]]
    prepare: Callable[[Tensor], Tensor] = heads_first
    finish: Callable[[Tensor], Tensor] = heads_first
    overwrites: bool = False


def transformers(given: Given) -> Operation:
    """transformers' function of Llama. cos and sin cover both halves, in q's dtype, as its models make them."""
    function = import_peer("transformers", "transformers.models.llama.modeling_llama").apply_rotary_pos_emb
    _only(given, layout="half", whole=True)
    cos, sin = _twice(given)
    return Operation(lambda q, k: function(q, k, cos, sin))


def rotary_embedding_torch(given: Given) -> Operation:
    """The class RotaryEmbedding with its defaults. It keeps the phases in float32, and takes cos and sin every time."""
    module = import_peer("rotary_embedding_torch", "rotary_embedding_torch")
    _only(given, layout="interleaved", unscaled=True)
    rotary = module.RotaryEmbedding(2 * given.cos.shape[-1], custom_freqs=given.inv_freq.float()).to(given.cos.device)

    def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)

    return Operation(rotate)


def torchtune(given: Given) -> Operation:
    """torchtune's module, of tokens before heads. It has frequencies by the paper's formula only."""
    module = import_peer("torchtune", "torchtune.modules.position_embeddings")
    _only(given, layout="interleaved", whole=True, unscaled=True)
    if given.spec.scaling != "none":
        raise Skip(f"torchtune's module has no scaling; the scheme has {given.spec.scaling}")
    rotary = module.RotaryPositionalEmbeddings(given.d_head, max_seq_len=given.length, base=given.spec.base)
    rotary = rotary.to(given.cos.device)
    return Operation(lambda q, k: (rotary(q), rotary(k)), tokens_first, tokens_first)


def flash_attn(given: Given) -> Operation:
    """flash-attn's Triton kernel into fresh memory, of tokens before heads; one launch each for q and k."""
    _only(given, cuda=True)
    if given.d_head > 256:
        raise Skip(f"flash-attn's rotation takes at most 256 features a head, not {given.d_head}")
    function = import_peer("flash_attn", "flash_attn.layers.rotary").apply_rotary_emb
    cos, sin, interleaved = given.cos.to(given.dtype), given.sin.to(given.dtype), given.spec.layout == "interleaved"

    def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return function(q, cos, sin, interleaved=interleaved), function(k, cos, sin, interleaved=interleaved)

    return Operation(rotate, tokens_first, tokens_first)


def liger(given: Given) -> Operation:
    """Liger's Triton kernel, which overwrites q and k where they lie as a projection leaves them."""
    _only(given, layout="half", whole=True, cuda=True)
    function = import_peer("liger_kernel", "liger_kernel.transformers.rope").liger_rotary_pos_emb
    cos, sin = _twice(given)
    return Operation(lambda q, k: function(q, k, cos, sin), as_projected, overwrites=True)


def flash_attention(slopes: Tensor | None, dtype: torch.dtype, device: str) -> Operation:
    """flash-attn's causal attention, of tokens before heads; with ALiBi's slopes [H] its kernel works the bias out."""
    if device != "cuda" or dtype == torch.float32:
        raise Skip("flash-attn's attention runs on CUDA in half precision only")
    function = import_peer("flash_attn", "flash_attn").flash_attn_func
    given = None if slopes is None else slopes.float()
    return Operation(lambda q, k, v: (function(q, k, v, causal=True, alibi_slopes=given),), tokens_first, tokens_first)


PEERS: dict[str, Callable[[Given], Operation]] = {
    "transformers": transformers, "rotary_embedding_torch": rotary_embedding_torch, "torchtune": torchtune,
    "flash_attn": flash_attn, "liger": liger,
}  # fmt: skip
NAMES = {"rotary_embedding_torch": "rotary-embedding-torch", "flash_attn": "flash-attn", "liger_kernel": "liger-kernel"}


def import_peer(package: str, module: str) -> Any:
    """The module. Skip if the package is not there, or is but does not load."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == package:
            raise Skip(f"{NAMES.get(package, package)} is not installed") from None
        raise Skip(f"{NAMES.get(package, package)} cannot be loaded: {error}") from error
    except Exception as error:  # whatever another library does when it does not like what it finds
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].strip()
        raise Skip(f"{NAMES.get(package, package)} cannot be loaded: {said}") from error


def _only(given: Given, layout: str = "", whole: bool = False, unscaled: bool = False, cuda: bool = False) -> None:
    """Skip for what a library does not do."""
    rotary_dim = 2 * given.cos.shape[-1]
    if cuda and given.cos.device.type != "cuda":
        raise Skip("its kernel runs on CUDA only")
    if layout and given.spec.layout != layout:
        raise Skip(f"it rotates the layout {layout} only; the scheme has {given.spec.layout}")
    if whole and rotary_dim != given.d_head:
        raise Skip(f"it rotates whole heads only; the scheme rotates {rotary_dim} of {given.d_head} features")
    if unscaled and given.scaled:
        raise Skip("it has no attention factor on cos and sin")


def _twice(given: Given) -> tuple[Tensor, Tensor]:
    """cos and sin [1, L, R] for both halves of a head, in q's dtype."""
    cos, sin = (torch.cat([t, t], dim=-1)[None].to(given.dtype) for t in (given.cos, given.sin))
    return cos, sin
