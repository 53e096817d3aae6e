"""``python -m simlab`` is the command ``simlab``."""

import sys

from simlab.cli import main

sys.exit(main())
