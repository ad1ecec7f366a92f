"""python -m gpurun: the gpurun program."""

import os
import sys

from gpurun._job import binary

if __name__ == "__main__":
    try:
        path = binary()
    except FileNotFoundError as error:
        sys.exit("gpurun: %s" % error)
    os.execv(path, [path, *sys.argv[1:]])
