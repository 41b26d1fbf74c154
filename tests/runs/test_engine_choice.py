"""The engine that plays where no option says it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fabric.errors import ConfigError, UsageError
from fabric.world.engine import INSIDE
from runs.engine_choice import chosen_engine, own_config
from runs.launching.spec import RunSpec


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An account that has chosen nothing."""
    monkeypatch.delenv("FABRIC_ENGINE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def write_config(text: str) -> None:
    own_config().parent.mkdir()
    own_config().write_text(text)


@pytest.mark.parametrize(("user", "engine"), [(0, "namespace"), (1000, "virtual")])
def test_root_plays_in_real_time_all_others_in_virtual_time(
    monkeypatch: pytest.MonkeyPatch, user: int, engine: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert chosen_engine() == engine
    assert RunSpec("isolation").engine == engine


def test_an_account_s_file_goes_before_the_rule_and_the_variable_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    write_config("engine: virtual\n")
    assert chosen_engine() == "virtual"
    monkeypatch.setenv("FABRIC_ENGINE", "namespace")
    assert chosen_engine() == "namespace"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert chosen_engine() == "namespace"


def test_within_a_world_it_is_the_world_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSIDE, "1")
    monkeypatch.setenv("FABRIC_ENGINE", "virtual")
    assert chosen_engine() == "namespace", "no guest"


def test_a_wrong_choice_is_refused_by_where_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    write_config("engine: real\nguest: 2\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: guest: unknown; the only key is engine"):
        chosen_engine()
    own_config().write_text("engine: real\n")
    with pytest.raises(ConfigError, match="'real' does not exist; use one of namespace, virtual"):
        chosen_engine()
    own_config().write_text("engine\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: holds a str"):
        chosen_engine()
    monkeypatch.setenv("FABRIC_ENGINE", "real")
    with pytest.raises(UsageError, match=r"FABRIC_ENGINE: engine 'real': .* use one of namespace, virtual"):
        chosen_engine()
