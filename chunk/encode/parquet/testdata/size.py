"""Prints how many times as large each FILE.parquet is as what pyarrow makes of the same table, with zstd at the same level."""

import os
import sys

import pyarrow.parquet as pq

for path in sys.argv[1:]:
    again = path + ".pyarrow"
    pq.write_table(pq.read_table(path), again, compression="zstd", compression_level=1, write_page_index=True, write_page_checksum=True)
    print(os.path.getsize(path) / os.path.getsize(again))
