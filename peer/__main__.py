"""`python -m peer` is `bamboo-peer`, where scripts of an environment are not on the path."""

import sys

from bamboo_cli import main

sys.exit(main())
