"""The models of a table, as the folders in which the reference library writes them."""

import pytest
from checkpoints import folder_with


@pytest.fixture
def pair(request, tmp_path):
    "A folder as the reference writes it, and that model, by its name in the file's table."
    return folder_with(request.module.theirs, request.param, tmp_path)
