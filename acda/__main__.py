"""python -m acda"""

import sys

from acda.cli import main

sys.exit(main())
