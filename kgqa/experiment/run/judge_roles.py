"""Whom a judge asks: the models of its roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgqa.experiment.config.files import Config
from kgqa.experiment.config.overrides import role_choice
from kgqa.experiment.session.engines import Answering, Engines, RoleNodes, chosen_nodes
from kgqa.experiment.session.session import Session
from kgqa.judge import ROLE

if TYPE_CHECKING:
    from kgqa.judge.judges import AnyJudge


def judge_engines(session: Session, judge: AnyJudge) -> Engines:
    return session.engines_of(judge_nodes(session.experiment.config, judge))


def judge_nodes(config: Config, judge: AnyJudge) -> RoleNodes:
    """Each of the judge's roles with its own model, else that of roles.judge, else that of the configuration."""
    general = config["roles"][ROLE]
    runs_own = Answering(config["model"], config["engine"])
    default = chosen_nodes(f"roles.{ROLE}", general, config) if general else runs_own
    key = f"{ROLE}.model" if ROLE in judge.roles else f"{ROLE}.members"
    return {role: chosen_nodes(key, own, config) if own else default for role, own in judge.roles.items()}


def reader_preset(config: Config) -> str:
    """With the adapter on it, as `Engines.label` writes both."""
    choice = role_choice(config["roles"]["reader"] or "")
    return f"{choice.preset or config['model']['name']}{choice.adapter and '+'}{choice.adapter}"
