"""python -m odradek: the same as the odradek command."""

import sys

from odradek.app.main import main

if __name__ == "__main__":
    sys.exit(main())
