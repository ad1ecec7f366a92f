"""The same as words.py as a program for exec: a line in, a line out."""

import json
import sys
from collections import Counter

for line in sys.stdin:
    record = json.loads(line)
    record["common"] = dict(Counter(record["text"].split()).most_common(3))
    print(json.dumps(record), flush=True)
