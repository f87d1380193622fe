"""Every combination is answered rightly, or raises what is documented."""

import pytest
import torch

from combinations import all_cases
from oracle import assert_right, attend64


def check(case):
    """True if it was answered; fails if wrongly, or not as it should be."""
    if case.raises is not None:
        with pytest.raises(case.raises):
            case.ask()
        return False
    out, lse = case.ask()
    if hasattr(case, "torchs"):
        want, _ = attend64(*case.qkv, case.rules)
        torch.testing.assert_close(case.torchs(), want, atol=1e-9, rtol=1e-9)
    assert_right(out, *case.qkv, case.rules, lse)
    return True


@pytest.mark.usefixtures("served")
def test_every_combination_is_right_or_raises_what_is_documented(device):
    failures, answered, total = [], 0, 0
    for case in all_cases(device):
        total += 1
        try:
            answered += check(case)
        except BaseException as error:
            failures.append(f"{case.name}: {type(error).__name__} {error}"[:300])
    print(f"{total} combinations on {device}: {answered} answered and right, ")
    print(f"{total - answered - len(failures)} raise what is documented")
    assert not failures, "\n".join(failures[:20]) + f"\n{len(failures)} failed"
    assert total >= 500
    assert answered >= 0.9 * total
