"""Prints how many times as large FILE.parquet is as what pyarrow makes of the same table, with zstd at the same level."""

import os
import sys

import pyarrow.parquet as pq

table = pq.read_table(sys.argv[1])
again = sys.argv[1] + ".pyarrow"
pq.write_table(table, again, compression="zstd", compression_level=1, write_page_index=True, write_page_checksum=True)
print(os.path.getsize(sys.argv[1]) / os.path.getsize(again))
