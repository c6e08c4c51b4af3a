"""Old names of keys, values and commands, each with the new one, for the error message that names it."""

from __future__ import annotations

from kgqa.errors import ConfigError

# A key, or key=value for a renamed value. The new name is written in the same form.
RENAMED_KEYS: dict[str, str] = {
    "name": "run_name",
    "out": "output_dir",
    "profile": "scoring",
    "width": "max_parallel_questions",
    "fail_above": "max_failure_rate",
    "engine.context": "engine.max_model_len",
    "engine.eager": "engine.enforce_eager",
    "engine.extra": "engine.extra_body",
    "engine.gpu_memory": "engine.gpu_memory_utilization",
    "engine.patience": "engine.server_timeout",
    "engine.slots": "engine.max_num_seqs",
    "human": "labels",
    "kg.demonstrations_from": "kg.few_shot",
    "kg.layout=begun": "kg.layout=prefixed",
    "kg.offline": "kg.require_existing",
    "method.completions_from": "method.completion_few_shot",
    "method.demonstrations_from": "method.few_shot",
    "method.demos_from": "method.few_shot_path",
    "method.examples_from": "method.few_shot",
    "method.explorations_from": "method.exploration_few_shot",
    "method.layout=begun": "method.layout=prefixed",
    "method.steps_from": "method.step_few_shot",
    "method.verdicts_from": "method.verdict_few_shot",
    "train.alpha": "train.lora_alpha",
    "train.batch": "train.batch_size",
    "train.decay": "train.lr_scheduler",
    "train.held_out": "train.eval_fraction",
    "train.rank": "train.lora_r",
    "train.targets": "train.target_modules",
    "train.texts_at_once": "train.chunk_size",
    "train.too_long": "train.truncation",
}
# Words behind `kgqa`, such as "data prepare".
RENAMED_COMMANDS: dict[str, str] = {
    "data prepare": "data download",
    "export": "report --format",
    "graph": "kg link",
    "index": "data index",
    "judge": "evaluate --calibrate",
    "open": "report --open",
    "status": "runs --running",
    "trained": "models trained",
    "verify": "data verify",
}


def check_renamed(override: str) -> None:
    """Raise a ConfigError that names the new word if a key or key=value has been renamed."""
    key, _, value = override.partition("=")
    for old in (key, f"{key}={value}"):
        if old in RENAMED_KEYS:
            raise ConfigError(f"{override}: {old} is now {RENAMED_KEYS[old]}. Use the new name.")


def check_renamed_command(command: str) -> None:
    """Raise a ConfigError that names the new command if this one has been renamed."""
    if command in RENAMED_COMMANDS:
        raise ConfigError(f"kgqa {command} is now kgqa {RENAMED_COMMANDS[command]}. Use the new name.")
