"""Check the keys of a run that belong to no component."""

from __future__ import annotations

from kgqa.config.building import changing_settings, check_value
from kgqa.config.files import Config
from kgqa.config.run_keys import REQUIRE_EXISTING, RunSettings
from kgqa.types import Json
from kgqa.util.settings import declared_fields

# groups that change no file of a run
UNREPORTED = ("choices", "tracker")


def read_settings(config: Config) -> RunSettings:
    """Check the keys of a run. Raises ConfigError with the key and its value."""
    ids = [config["ids"]] if isinstance(config["ids"], str | int) else config["ids"]
    flat = {**config, "ids": ids, REQUIRE_EXISTING: config["kg"]["require_existing"]}
    values = {}
    for name, declared in declared_fields(RunSettings).items():
        key = REQUIRE_EXISTING if name == "require_existing" else name
        if declared.is_added_later:  # the settings of older runs lack it
            flat.setdefault(key, declared.default)
        values[name] = check_value(key, flat[key], declared.type)
    return RunSettings(**values)


def list_reported_settings(config: Config) -> dict[str, Json]:
    """Return every setting that can change a file of a run: a finished run of these settings need not run again."""
    fields = declared_fields(RunSettings)
    settings = {
        key: value
        for key, value in config.items()
        if key not in UNREPORTED and (key not in fields or fields[key].can_change_files)
    }
    nodes = {
        key: changing_settings(config[key], key, files=True)
        for key in ("engine", "retriever")
        if config.get(key)
    }
    return {**settings, **nodes}
