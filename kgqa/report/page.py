"""A page of a template, with its styles and script inside it: one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files

# what shows questions, in the order they need each other
EXPLORER = ("tables.js", "graph.js", "question.js", "report.js")
