"""The sources of datasets and corpora, with the files that a download must contain."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kgqa.errors import ConfigError
from kgqa.types import Json


class Hub(BaseModel):
    """A data set on Hugging Face's hub."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    config: str
    split: str


class Source(BaseModel):
    """An entry of conf/downloads.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    content: str
    licence: str
    page: str
    folder: str  # below the data folder
    urls: tuple[str, ...]  # tried in order; none: there is nothing to fetch
    file: str  # what the URLs give
    bytes: int | None
    sha256: str | None
    members: tuple[str, ...] = ()  # of the archive; none: the file is no archive
    abstracts: str | None = None  # the file that HotpotQA's archive of abstracts is turned into
    hub: Hub | None = None

    @property
    def makes(self) -> tuple[str, ...]:
        """Return the files that are there once all is done."""
        return (self.abstracts,) if self.abstracts else self.members or (self.file,)


def parse(entries: Mapping[str, Json]) -> dict[str, Source]:
    """Return the entries of conf/downloads.yaml by name.

    Raises:
        ConfigError: an entry has a wrong or missing key.
    """
    try:
        return TypeAdapter(dict[str, Source]).validate_python(entries)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"downloads.{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
