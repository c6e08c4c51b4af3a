"""`python -m kgqa` is `kgqa`."""

import sys

from kgqa.cli.main import main

sys.exit(main())
