"""Results of the lab on disk, by key: those that ship, and those made here; weights, and runs that were left."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from posenc_core.lab import Result, Run, extend
from posenc_core.model import ToyModel
from posenc_core.train import new_model

SHIPPED = Path(__file__).resolve().parents[1] / "assets" / "lab"
RESULTS = "results.jsonl"  # of the shipped folder: a Result a line, as a sweep writes them
MOST_KEPT, MOST_BYTES = 500, 2**31  # runs, and their files; the oldest go first
KEY = re.compile("[0-9a-f]{32}")
STATE = {"phase", "losses", "seconds", "total", "trainer"}  # of Execution.state_dict
ENDINGS = ("json", "safetensors", "state")
UNFINISHED = "new-"  # how names of files begin that are being written
STALE = 3600  # seconds after which their writer is taken for dead


def read_result(text: str | bytes) -> Result | None:
    """A result from its JSON, None for anything else."""
    try:
        return Result.from_mapping(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class Store:
    """Finds and keeps what runs made. Shipped results are read only; without a `folder` nothing is kept.

    Several threads and processes may share a folder: files are replaced whole. What cannot be read is taken as absent.
    """

    def __init__(self, folder: Path | None, shipped: Path | None = SHIPPED) -> None:
        self.folder, self._shipped = folder, shipped

    @cached_property
    def shipped(self) -> dict[str, Result]:
        """The shipped results by key."""
        path = self._shipped / RESULTS if self._shipped else None
        if path is None or not path.exists():
            return {}
        return {r.key: r for r in map(read_result, path.read_text().splitlines()) if r is not None}

    def get(self, key: str) -> Result | None:
        """The result of a run, None if it was not made."""
        if key in self.shipped:
            return self.shipped[key]
        path = self._path(key, "json")
        try:
            made = read_result(path.read_bytes()) if path else None
        except OSError:
            return None
        if made is None or made.key != key or path is None:
            return None
        with suppress(OSError):
            os.utime(path)
        return made

    def put(self, result: Result, model: ToyModel) -> None:
        """Keep a result and its weights."""
        if self.folder is None:
            return
        self.put_weights(result.key, model)
        with self._replacing(result.key, "json") as path:
            path.write_text(json.dumps(result.to_mapping()))
        self.drop_state(result.key)
        self._prune()

    def put_weights(self, key: str, model: ToyModel) -> None:
        """Keep only a run's weights, float16; there is no limit on how many."""
        if self.folder is None:
            return
        weights = {name: t.half().contiguous() for name, t in model.state_dict().items()}
        with self._replacing(key, "safetensors") as path:
            save_file(weights, path)

    def model(self, run: Run) -> ToyModel | None:
        """The trained model of a run as it was measured, None where its weights were not kept.

        A scaling that is put on without training leaves the weights as they were.
        """
        keys = dict.fromkeys([run.key] if run.setting.finetune_steps else [run.key, run.base.key])
        paths = [folder / f"{key}.safetensors" for key in keys for folder in (self._shipped, self.folder) if folder]
        for path in paths:
            try:
                weights = load_file(path)
                model = new_model(run.config)
                if run.setting.extension != "off":
                    extend(model, run)
                model.load_state_dict({name: t.float() for name, t in weights.items()})
            except (OSError, SafetensorError, RuntimeError):  # RuntimeError: they are another model's
                continue
            return model.eval().requires_grad_(False)
        return None

    def save_state(self, key: str, state: dict[str, Any]) -> None:
        """Keep how far a run is that was left (`Execution.state_dict`)."""
        if self.folder is not None and state:
            with self._replacing(key, "state") as path:
                torch.save(state, path)
            self._prune()

    def state(self, key: str) -> dict[str, Any] | None:
        """How far a run was when it was left, None if it was not."""
        path = self._path(key, "state")
        try:
            state = torch.load(path, weights_only=True) if path else None
        except Exception:  # a broken pickle raises anything
            return None
        return state if isinstance(state, dict) and state.keys() >= STATE else None

    def drop_state(self, key: str) -> None:
        """Forget how far it was."""
        path = self._path(key, "state")
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, key: str, ending: str) -> Path | None:
        return self.folder / f"{key}.{ending}" if self.folder else None

    @contextmanager
    def _replacing(self, key: str, ending: str) -> Iterator[Path]:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=UNFINISHED)
        os.close(handle)
        try:
            yield Path(name)
            os.replace(name, self.folder / f"{key}.{ending}")
        finally:
            Path(name).unlink(missing_ok=True)

    def _prune(self) -> None:
        assert self.folder is not None
        ages, sizes = dict[str, float](), dict[str, int]()
        for path in self.folder.iterdir():
            with suppress(OSError):  # another process may have taken it away
                found = path.stat()
                if path.suffix[1:] in ENDINGS and KEY.fullmatch(path.stem):  # other files are somebody else's
                    ages[path.stem] = max(ages.get(path.stem, 0.0), found.st_mtime)
                    sizes[path.stem] = sizes.get(path.stem, 0) + found.st_size
                elif path.name.startswith(UNFINISHED) and found.st_mtime < time.time() - STALE:
                    path.unlink()
        kept = total = 0
        for key in sorted(ages, key=ages.__getitem__, reverse=True):
            kept, total = kept + 1, total + sizes[key]
            if kept > MOST_KEPT or total > MOST_BYTES:
                for ending in ENDINGS:
                    (self.folder / f"{key}.{ending}").unlink(missing_ok=True)
