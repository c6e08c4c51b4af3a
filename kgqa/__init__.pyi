__version__: str

from kgqa.api import Run as Run
from kgqa.api import ask as ask
from kgqa.api import compare as compare
from kgqa.api import current_tools as current_tools
from kgqa.api import evaluate as evaluate
from kgqa.api import explain as explain
from kgqa.api import load as load
from kgqa.api import plan as plan
from kgqa.api import run as run
from kgqa.api import runs as runs
from kgqa.api import sweep as sweep
