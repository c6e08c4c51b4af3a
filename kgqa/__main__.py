"""`python -m kgqa` is `kgqa`."""

import sys

from kgqa.cli import main

sys.exit(main())
