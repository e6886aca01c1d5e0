"""All claims, in one table; `python -m posenc_core.claims` prints it with what was measured.

found = recorded()
for claim in CLAIMS:
    print(claim.number, claim.judge(found).verdict)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from posenc_core import choosing, claims_direct, claims_lab
from posenc_core.claims import Claim, Evidence, Judgement, Number, amount
from posenc_core.claims_lab import GAP, P_ROPE, PARTIAL, SEEDS, TUNED, LabJudge
from posenc_core.lab import DEFAULT_SCHEMES, Result, Run, Setting, parse_schemes, runs
from posenc_core.lab_store import Store

BENCHMARKS = Path(__file__).resolve().parents[1] / "assets" / "benchmarks"
ALL_SEEDS = ",".join(map(str, SEEDS))
EIGHT = 2 * 2**0.5  # its square is √64: what scores are too large by without 1/√d


def _lab(schemes: str, **setting: object) -> dict[str, str]:
    """The query of the Lab page."""
    return {"schemes": schemes, "seeds": ALL_SEEDS} | {name: str(value) for name, value in setting.items()}


def _from_lab(judge: LabJudge) -> dict[str, Any]:
    return {"judge": judge, "runs": judge.runs}


VASWANI = "Vaswani et al. 2017, arXiv:1706.03762"
SU = "Su et al. 2021, arXiv:2104.09864"
PRESS = "Press et al. 2022, arXiv:2108.12409"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        1, "No positions, no order",
        "Attention without positional encoding is permutation equivariant: shuffle the tokens and the outputs are "
        "shuffled alike.",
        "paper", "Yun et al. 2020, arXiv:1912.10077",
        "One attention layer reads 64 random tokens and the same in another order, without mask, with the causal mask, "
        "and with RoPE; the outputs are put in the same order and compared.",
        "attention", {"scheme": "none", "order": "shuffled"}, claims_direct.permutation,
    ),
    Claim(
        2, "Sinusoidal vectors",
        "Sinusoidal position vectors are unique and bounded, and the vector at p + k is a linear map of that at p.",
        "paper", VASWANI,
        "All distances of two vectors among 65,536 positions, the largest feature, and the error of the rotation that "
        "should move each vector by 1, 100 and 4,096 positions.",
        "encodings", {"scheme": "sinusoidal", "seq_len": "4096"}, claims_direct.sinusoidal_vectors,
    ),
    Claim(
        3, "Wavelengths",
        "The wavelengths run from 2π to 10000·2π.",
        "paper", VASWANI,
        "First and last wavelength of the formula at 512 and 128 dimensions, and with the exponent that ends at 1.",
        "encodings",
        {"scheme": "sinusoidal", "d_model": "512", "b_scheme": "sinusoidal", "b_d_model": "512", "b_endpoint": "true"},
        claims_direct.wavelength_ends,
    ),
    Claim(
        4, "Integer indices",
        "Plain integer positions blow up: large indices drown the token embedding.",
        "article", "articles",
        "Norm of the index in every one of 128 dimensions beside that of a token of unit variance, and how alike two "
        "tokens become at position 511.",
        "encodings", {"scheme": "integer", "b_scheme": "integer", "b_variant": "normalized"},
        claims_direct.integer_indices,
    ),
    Claim(
        5, "Learned table",
        "A learned table of positions is undefined past its length.",
        "article", "articles",
        "A table of 128 rows is asked for every position up to 8 times that.",
        "encodings", {"scheme": "learned", "seq_len": "256"}, claims_direct.learned_table,
    ),
    Claim(
        6, "Sinusoidal extrapolates",
        "Sinusoidal encoding extrapolates to sequences of any length.",
        "article", f"articles; {VASWANI}, says that it may",
        "Three models with sinusoidal vectors are trained at 64 bytes and read the same held-out bytes at 1 to 16 "
        "times that length.",
        "lab", _lab("sinusoidal, rope, alibi"), **_from_lab(claims_lab.sinusoidal_extrapolates),
    ),
    Claim(
        7, "Projections and decay",
        "The projections W_q and W_k destroy the decay with distance that added sinusoidal vectors have.",
        "paper", "Yan et al. 2019, arXiv:1911.04474; of encoders that look both ways, and of any projections",
        f"Scores of the vectors alone beside those after {claims_direct.DRAWS} random pairs of projections, and after "
        "those of the first layer of one trained causal model: correlation within a query's row, keys up to the query "
        "only since no training moves the others, and how much of the variance there distance explains.",
        "decay", {"scheme": "sinusoidal", "projection": "random"}, claims_direct.projections,
    ),
    Claim(
        8, "RoPE is relative",
        "With RoPE a score depends on the positions m and n through m - n only.",
        "paper", SU,
        "Scores of one random query and key at all pairs of 128 positions, and with all positions moved by up to a "
        "million, for every scaling.",
        "decay", {"scheme": "rope", "projection": "random"}, claims_direct.relative_only,
    ),
    Claim(
        9, "Rotation keeps norms",
        "RoPE rotates, so it keeps the norms of queries and keys.",
        "paper", SU,
        "Norms of 256 random vectors before and after rotation, at positions up to a million, for every scaling.",
        "encodings", {"scheme": "rope", "b_scheme": "rope", "b_scaling": "yarn", "b_factor": "4"}, claims_direct.norms,
    ),
    Claim(
        10, "RoPE decays",
        "With RoPE attention decays with distance.",
        "paper", f"{SU}; Barbero et al. 2024, arXiv:2410.06205, disagree",
        "Scores at 256 to 511 positions beside those at 0 to 15: of equal queries and keys, and the size of those of "
        "256 independent random pairs.",
        "decay", {"scheme": "rope"}, claims_direct.decay,
    ),
    Claim(
        11, "RoPE's cost",
        "RoPE adds about 7% compute.",
        "article", "articles",
        "Time of one attention layer, without MLP, with RoPE beside the same layer without positions, in turn, "
        "on the CPU; and the multiplications and additions of both, counted.",
        "timing", {"scheme": "rope", "longest": "2048"}, claims_lab.rope_cost,
    ),
    Claim(
        12, "RoPE past its length",
        "RoPE degrades at twice the training length.",
        "paper", PRESS,
        "Three models with RoPE are trained at 64 bytes and read the same held-out bytes at 1 to 16 times that length.",
        "lab", _lab("rope, alibi"), **_from_lab(claims_lab.rope_degrades), decided_at=(2,),
    ),
    Claim(
        13, "Position interpolation",
        "Position interpolation repairs RoPE past its training length, after a short fine-tuning.",
        "paper", "Chen et al. 2023, arXiv:2306.15595; within 1,000 steps",
        f"The same models with all frequencies divided by 2 and by 4, at once and after {TUNED} steps at the new "
        "length; beside them as much fine-tuning without it, which has to do worse if it is PI that repairs.",
        "lab", _lab("rope", extension="linear", times=4, finetune_steps=TUNED),
        **_from_lab(claims_lab.interpolation_repairs), decided_at=(2, 4),
    ),
    Claim(
        14, "NTK-aware scaling",
        "NTK-aware scaling repairs RoPE at twice its training length without any training.",
        "article", "bloc97 2023; Peng et al. 2023, arXiv:2309.00071",
        "The same models with the base that NTK takes for 2 times the length, untrained; beside it YaRN, and dynamic "
        "NTK by Hugging Face's formula with factor 2, which at that length stretches the longest wavelength more.",
        "lab", _lab("rope", extension="ntk", times=2), **_from_lab(claims_lab.ntk_repairs), decided_at=(2,),
    ),
    Claim(
        15, "ALiBi extrapolates",
        "ALiBi extrapolates: trained short, it works at several times the length.",
        "paper", PRESS,
        "Three models with ALiBi are trained at 64 bytes and read the same held-out bytes at 1 to 16 times that "
        "length; three more learn to recall by content (key and value are one token) and are asked at those lengths, "
        "beside models with RoPE and without positions.",
        "lab", _lab("alibi, rope"), **_from_lab(claims_lab.alibi_extrapolates),
    ),
    Claim(
        16, "ALiBi's memory",
        "ALiBi needs no parameters and saves about 15% memory at 2,048 tokens.",
        "article", f"articles; {PRESS}, measure 11% for a whole model trained at half the length",
        f"Parameters counted; the most that one attention layer has allocated at {claims_lab.SAVED_AT:,} tokens, as a "
        f"multiple of the same with sinusoidal vectors and with RoPE; attention alone with its bias made in memory.",
        "timing", {"scheme": "alibi", "b_scheme": "rope", "longest": "2048"}, claims_lab.alibi_saves,
    ),
    Claim(
        17, "ALiBi when short",
        "ALiBi is 2–3% worse below 512 tokens and where precise positions matter.",
        "article", "articles",
        "ALiBi beside RoPE at their training length of 64, the only one tested: loss on text and on short texts, as a "
        "share of RoPE's, and right answers for the letter 8 positions back, as a share of all.",
        "lab", _lab("alibi, rope", task="token_back"), **_from_lab(claims_lab.alibi_is_worse),
        decided_at=(1,),
    ),
    Claim(
        18, "ALiBi's slopes",
        "ALiBi's slopes are 1/2, 1/4, 1/8, and so on: one halving a head.",
        "article", f"articles; {PRESS}, give it for 8 heads",
        "The authors' slopes for 8 and for 12 heads, largest first, beside powers of 1/2.",
        "encodings", {"scheme": "alibi", "n_heads": "12", "b_scheme": "alibi"}, claims_direct.slopes,
    ),
    Claim(
        19, "ALiBi and the mask",
        "ALiBi needs the causal mask.",
        "article", "articles",
        "Without mask: where the query in the middle of 64 looks under -slope·(i - j) and under -slope·|i - j|, and "
        "what reversing the text changes.",
        "encodings", {"scheme": "alibi", "variant": "symmetric", "b_scheme": "alibi"}, claims_direct.causal_mask,
    ),
    Claim(
        20, "Progressive length",
        "Training that starts short and doubles the length improves extrapolation by 30%.",
        "article", "articles; Press et al. 2021, arXiv:2012.15832, train short first",
        "RoPE, ALiBi and sinusoidal trained at 8, 16, 32 and 64 bytes in turn, beside 64 all along: mean loss at 2 to "
        "16 times the length. Improvement is the share that goes away of the rise from the loss at the training "
        "length, which changes as well.",
        "lab", _lab("rope, alibi, sinusoidal", curriculum="progressive"), **_from_lab(claims_lab.progressive_length),
    ),
    Claim(
        21, "ALiBi early, RoPE late",
        "ALiBi in the first layers and RoPE in the last beats either alone.",
        "article", "articles",
        "The three of them in all six tasks of the lab, at the training length and past it.",
        "lab", _lab("alibi+rope, rope, alibi"), **_from_lab(claims_lab.hybrid_beats_both),
    ),
    Claim(
        22, "Dynamic slopes",
        "ALiBi slopes that change in training, m_t = m_0·(1 + α·log(t/T)), converge faster.",
        "article", "articles",
        "Steps until the loss that fixed slopes have in their last quarter, and the final loss, α = 0.5.",
        "lab", _lab("alibi", slope_training="dynamic"), **_from_lab(claims_lab.dynamic_slopes),
        decided_at=(1,),
    ),
    Claim(
        23, "p-RoPE",
        "p-RoPE, without the lowest frequencies, keeps what is found by content at long range.",
        "paper", "Barbero et al. 2024, arXiv:2410.06205; they argue it, and measure perplexity, not recall",
        "Recall by content, where key and value are one token, trained at 64 tokens and asked up to 16 times that: "
        "half of the frequencies zero, half of the features unrotated, all rotated, none.",
        "lab", _lab(f"{P_ROPE}, {PARTIAL}, rope, none", task="recall"),
        **_from_lab(claims_lab.proportional_keeps_content),
    ),
    Claim(
        24, "Perturbed positions",
        "Training on perturbed positions can help past the training length.",
        "paper", "Ruoss et al. 2023, arXiv:2305.16843",
        f"RoPE and sinusoidal trained on 64 positions drawn from {GAP * 64} and sorted, beside consecutive ones. Ruoss "
        "et al. draw positions at test time too, and from more than the longest test; here tests take consecutive "
        f"ones, so up to {GAP} times the length is judged, and what lies beyond only shown.",
        "lab", _lab("rope, sinusoidal", position_gap=GAP), **_from_lab(claims_lab.perturbed_positions),
        decided_at=(2, 4),
    ),
    Claim(
        25, "The KV cache",
        "A new token changes no cached key, so positions suit the KV cache.",
        "article", "articles",
        "Keys of every scheme and scaling in a sequence of n tokens beside the same keys when there are n + 1, at the "
        "original length and at twice that.",
        "extension", {"scheme": "rope", "method": "dynamic", "trained_length": "8192", "target_length": "65536"},
        claims_direct.cached_keys,
    ),
    Claim(
        26, "Slip: the cosine's exponent",
        "The odd features are cos(p / 10000^((2i+1)/d)).",
        "article", "a slip in articles",
        "The slip beside the formula of the paper, where a sine and its cosine share a frequency: norms, dot products "
        "against distance, and the best linear map that moves vectors by 64 positions.",
        "decay", {"scheme": "sinusoidal", "projection": "identity"}, claims_direct.cosine_exponent,
    ),
    Claim(
        27, "Slip: no 1/√d",
        "Attention weights are softmax(q·k), the division by √d left out.",
        "article", "a slip in articles",
        "Softmax over 512 random keys of 64 features with and without 1/√d: entropy and the largest weight; and "
        "without it for queries drawn √d smaller, as T5 does (Raffel et al. 2020, arXiv:1910.10683).",
        "extension",
        {"scheme": "rope", "scaling": "yarn", "attention_factor": f"{EIGHT:.6f}", "attention_on": "scores",
         "method": "chosen"},
        claims_direct.unscaled_scores,
    ),
)  # fmt: skip


def needed_runs() -> list[Run]:
    """The runs of all claims, of the Lab page's default set and of choosing, each once, those before them included."""
    default, problems = runs(parse_schemes(DEFAULT_SCHEMES), Setting(), SEEDS)
    assert not problems, problems
    wanted = [*default, *(run for claim in CLAIMS for run in claim.runs()), *choosing.needed()]
    return list({run.key: run for each in wanted for run in (each.base, each)}.values())


def recorded(results: Iterable[Path] = ()) -> Evidence:
    """What ships, and what sweeps wrote besides (a Result a line). OSError, ValueError, KeyError or TypeError."""
    made = dict(Store(None).shipped)
    for path in results:
        more = (Result.from_mapping(json.loads(line)) for line in path.read_text().splitlines() if line.strip())
        made |= {r.key: r for r in more}
    return Evidence(made, timings([json.loads(path.read_text()) for path in sorted(BENCHMARKS.glob("*.json"))]))


def timings(recorded: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Recorded runs of the benchmark as one: the first, with the records of those others that have its sizes."""
    if not recorded:
        return {}
    first = recorded[0]

    def sizes(run: Mapping[str, Any]) -> list[Any]:
        return [run.get("config", {}).get(name) for name in ("heads", "d_head", "batch")]

    return {**first, "records": [r for run in recorded if sizes(run) == sizes(first) for r in run["records"]]}


def number_text(number: Number) -> str:
    """A number with its spread and unit, and the one that the claim gives."""
    claimed = f" (claimed: {number.claimed})" if number.claimed else ""
    return f"{number.name}: {amount(number.value, number.unit, number.spread)}{claimed}"


def to_mapping(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """A claim and its judgement as plain values."""
    fields = ("number", "name", "sentence", "source", "reference", "experiment", "page")
    told = {name: getattr(claim, name) for name in fields} | {"query": dict(claim.query)}
    return told | {"runs": [run.key for run in claim.runs()]} | asdict(judgement)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m posenc_core.claims", description="Judge every claim by what was measured."
    )
    parser.add_argument(
        "--results", type=Path, action="append", default=[], metavar="FILE",
        help="results of a sweep (python -m posenc_core.lab --json FILE), beside those that ship",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write all of it")
    args = parser.parse_args(arguments)
    if args.json and not args.json.parent.is_dir():
        parser.error(f"--json = {args.json}: there is no folder {args.json.parent}")
    try:
        evidence = recorded(args.results)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"these are no results: {error}")
    torch.set_num_threads(1)
    judged = [(claim, claim.judge(evidence)) for claim in CLAIMS]
    for claim, judgement in judged:
        condition = f": {judgement.condition}" if judgement.condition else ""
        print(f"{claim.number:2}  {claim.sentence}\n    {judgement.verdict}{condition}")
        for number in judgement.numbers:
            print(f"      {number_text(number)}")
    if args.json:
        args.json.write_text(json.dumps([to_mapping(*pair) for pair in judged], indent=1) + "\n")
    return 0
