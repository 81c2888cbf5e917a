"""Equalities of this part are proven in float64, where rounding leaves them room."""

import pytest
import torch


@pytest.fixture(autouse=True)
def float64():
    "Whoever claims something about another type asks for it by name."
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
