"""Tests of what needs torch: the drop-ins, as operators and in models."""

import os

import pytest
import torch

import attendant

torch.set_num_threads(2)


@pytest.fixture(scope="session")
def device():
    """Where tensors lie: ATTENDANT_TEST_DEVICE, or the CPU."""
    return os.environ.get("ATTENDANT_TEST_DEVICE", "cpu")


@pytest.fixture(scope="session")
def served(target):
    """The drop-ins ask a running server, by the best core and door there are."""
    with attendant.Client(target, door="auto") as client:
        attendant.set_default_client(client, timeout=120)
        yield client
        attendant.set_default_client(None)
