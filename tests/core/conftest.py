"""One thread: the tensors here are tiny, and other processes want the cores."""

import torch

torch.set_num_threads(1)
