"""Whom a judge asks: the models of its roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgqa.config.files import Config
from kgqa.config.overrides import parse_role
from kgqa.experiment.session.engines import Engines, RoleBinding, RoleNodes, choose_nodes
from kgqa.experiment.session.session import Session
from kgqa.judge import ROLE

if TYPE_CHECKING:
    from kgqa.judge.judges import AnyJudge


def judge_engines(session: Session, judge: AnyJudge) -> Engines:
    return session.engines_of(judge_nodes(session.experiment.config, judge))


def judge_nodes(config: Config, judge: AnyJudge) -> RoleNodes:
    """Return each of the judge's roles with its own model, else that of roles.judge, else that of the configuration."""
    general = config["roles"][ROLE]
    runs_own = RoleBinding(config["model"], config["engine"])
    default = choose_nodes(f"roles.{ROLE}", general, config) if general else runs_own
    key = f"{ROLE}.model" if ROLE in judge.roles else f"{ROLE}.members"
    return {role: choose_nodes(key, own, config) if own else default for role, own in judge.roles.items()}


def reader_preset(config: Config) -> str:
    """Return the reader preset with the adapter on it, as `Engines.label` writes both."""
    choice = parse_role(config["roles"]["reader"] or "")
    return f"{choice.preset or config['model']['name']}{choice.adapter and '+'}{choice.adapter}"
