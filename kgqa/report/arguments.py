"""Command lines whose options have values."""

from __future__ import annotations

import argparse
from typing import NoReturn

from kgqa.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """What is wrong is one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}; see {self.prog} --help")
