"""Tell Hydra the folders of configurations: the user's, those of packages, kgqa's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from kgqa.util.plugins import conf_folders, package_conf

RUN = "kgqa_run"  # the configuration of a run; a config.yaml in an own conf/ belongs to another program and is not read


class OwnFolders(SearchPathPlugin):
    """In a module of its own, since launchers send Hydra's plugins to other processes by name."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in conf_folders()[:-1]:
            search_path.prepend("kgqa", f"file://{folder.resolve()}", anchor="main")


@contextmanager
def hydra_ready() -> Iterator[None]:
    """Initialize Hydra with `RUN` and the configurations of all folders."""
    Plugins.instance().register(OwnFolders)
    if f"{RUN}.yaml" not in ConfigStore.instance().repo:
        ConfigStore.instance().store(name=RUN, node=OmegaConf.load(package_conf() / "config.yaml"))
    with initialize_config_dir(str(package_conf().resolve()), version_base="1.3"):
        yield
