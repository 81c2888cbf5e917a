"""Equalities are proven in float64, where the default tolerance leaves room on every processor."""

import pytest
import torch


@pytest.fixture(autouse=True)
def exact_and_seeded():
    "What a test makes is float64 and drawn from one seed; `single` is for claims about float32."
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def single(exact_and_seeded):
    torch.set_default_dtype(torch.float32)
