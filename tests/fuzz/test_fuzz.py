"""A small sample of every kind of bad input and fault; ``make fuzz`` tries thousands."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from cases import FAULTS, HAPHAZARD, KINDS, SAMPLE, try_case
from machine import BAD


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_bad_input_is_refused_in_words_and_harms_nothing(name: str) -> None:
    quickly = {"deadline": None, "database": None, "phases": [Phase.generate], "suppress_health_check": [*HealthCheck]}

    @settings(max_examples=SAMPLE[name], derandomize=True, **quickly)  # type: ignore[arg-type]
    @given(st.randoms(use_true_random=False))
    def one(rng: random.Random) -> None:
        outcome = try_case(name, rng)
        assert outcome.verdict not in BAD, f"{outcome.verdict}: {outcome.case}\n{outcome.said}"

    one()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_faults_while_a_run_is_at_work_lose_nothing() -> None:
    words = [word for name in FAULTS if name not in HAPHAZARD for word in ("--kind", name)]
    script = str(Path(__file__).with_name("run.py"))
    done = subprocess.run([sys.executable, script, "--cases", "4", *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kind_has_its_sample() -> None:
    assert {*SAMPLE, *FAULTS} == set(KINDS)
    assert set(FAULTS) > HAPHAZARD
